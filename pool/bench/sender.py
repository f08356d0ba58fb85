"""`python -m pool.bench.sender`: one of several clients of `--clients N`, a process of its own.

A Python process sends and receives with one processor at most, so many clients are many processes. msgpack comes in:
what to submit, then an order a run; what was sent and answered goes out while it happens, and the parent counts. The
end of its input ends it.
"""

import os
import threading
import time
from array import array
from queue import SimpleQueue
from typing import Any, BinaryIO, NoReturn

import msgpack

from pool import Client
from pool.bench.job import BenchJob, unpacked
from pool.bench.load import NO_WARMUP, Load
from pool.bench.loop import run_loop
from pool.bench.point import Answer
from pool.errors import PoolError
from pool.wire.codec import packed

__all__ = ["main"]

TELL_S = 0.05


class Relay:
    """Implements `pool.bench.loop.Tally` by passing everything on, until it is told to stop."""

    def __init__(self, out: BinaryIO, stop: threading.Event) -> None:
        self.early = ""
        self._out = out
        self._stop = stop
        self._told = 0.0
        self._sent = array("d")
        self._answers: list[Answer] = []

    def begin(self, now: float) -> None:
        self._told = now

    def sent(self, due: float, at: float) -> None:
        self._sent.extend((due, at))

    def answered(self, answer: Answer) -> None:
        self._answers.append(answer)

    def look(self, now: float) -> bool:
        if now - self._told >= TELL_S:
            self._told = now
            self._tell()
        return not self._stop.is_set()

    def wants(self, outstanding: int) -> bool:  # noqa: ARG002  # the parent counts the jobs
        return True

    def end(self, now: float, cpu_share: float) -> None:  # noqa: ARG002
        self._tell()
        _say(self._out, {"ended": cpu_share})

    def _tell(self) -> None:
        if self._sent or self._answers:
            _say(self._out, {"sent": self._sent.tobytes(), "answers": self._answers})
            self._sent, self._answers = array("d"), []


def main() -> NoReturn:
    # Whatever a library prints must not end up among the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_read, args=(orders, stop), daemon=True).start()
    try:
        _serve(orders, stop, out)
    except (PoolError, OSError) as error:
        _say(out, {"failed": str(error)})
    os._exit(0)  # futures that are still out are nobody's


def _read(orders: "SimpleQueue[dict[str, Any]]", stop: threading.Event) -> None:
    # Unbuffered: a buffered one waits for more than an order.
    stdin = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115  # it lives as long as the process
    for order in msgpack.Unpacker(stdin, max_buffer_size=0):
        if "stop" in order:
            stop.set()
        else:
            stop.clear()
            orders.put(order)
    os._exit(0)


def _serve(orders: "SimpleQueue[dict[str, Any]]", stop: threading.Event, out: BinaryIO) -> None:
    first = orders.get()
    job = BenchJob(first["model"], first["signature"], tuple(map(unpacked, first["jobs"])), first["rows"])
    with Client(first["endpoint"], reconnect_timeout=0.0) as client:
        client.models()  # connected before the time is taken
        _say(out, {"ready": True})
        while True:
            order = orders.get()
            load = Load(**{**order["load"], "warmup": NO_WARMUP})
            time.sleep(max(0.0, order["begin"] - time.perf_counter()))  # one clock for all processes of the machine
            run_loop(job.submitter(client, load.timeout_s, order["first"]), load, Relay(out, stop))


def _say(out: BinaryIO, what: object) -> None:
    out.write(packed(what))
    out.flush()


if __name__ == "__main__":
    main()

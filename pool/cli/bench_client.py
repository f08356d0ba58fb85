"""`python -m pool.cli.bench_client`: one of several clients of `pool bench --clients N`, a process of its own.

A Python process sends and receives with one processor at most, so many clients are many processes. msgpack comes in:
what to submit, then an order a run; what was sent and answered goes out while it happens, and the parent counts. The
end of its input ends it.
"""

import os
import threading
import time
from array import array
from collections import deque
from queue import SimpleQueue
from typing import Any, BinaryIO, NoReturn

import msgpack

from pool.cli.bench_job import BenchJob, unpacked
from pool.cli.closed_loop import run_closed_loop
from pool.cli.measured import Answer
from pool.cli.open_loop import Load, run_open_loop
from pool.cli.steadiness import Course
from pool.client.client import Client
from pool.errors import PoolError
from pool.wire.codec import packed

__all__ = ["main"]

TELL_S = 0.05


class Relay:
    """Implements `pool.cli.meter.Tally` by passing everything on, until it is told to stop."""

    def __init__(self, out: BinaryIO, stop: threading.Event) -> None:
        self.early = ""
        self._out = out
        self._stop = stop
        self._told = 0.0
        self._sent = array("d")
        self._answers: deque[Answer] = deque()  # appended to by the client's I/O thread

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
        sent, self._sent = self._sent, array("d")
        answers = [self._answers.popleft() for _ in range(len(self._answers))]
        if sent or answers:
            _say(self._out, {"sent": sent.tobytes(), "answers": answers})


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
            submit = job.submitter(client, order["timeout_s"], order["first"])
            relay = Relay(out, stop)
            _wait_until(order["begin"])
            if "in_flight" in order:
                run_closed_loop(submit, order["in_flight"], relay)
            else:
                course = Course(order["longest_s"])
                run_open_loop(
                    submit, Load(order["rate"], course, order["timeout_s"], order["seed"], order["offset_s"]), relay
                )


def _wait_until(instant: float) -> None:
    """`time.perf_counter` is the machine's monotonic clock, the same for all its processes."""
    time.sleep(max(0.0, instant - time.perf_counter()))


def _say(out: BinaryIO, what: object) -> None:
    out.write(packed(what))
    out.flush()


if __name__ == "__main__":
    main()

"""Several clients at once, each a process of its own (`pool.cli.bench_client`); what they tell is counted here."""

import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self

import msgpack

from pool.cli.bench_job import BenchJob
from pool.cli.measured import INTERRUPTED, Answer
from pool.cli.meter import LOOK_S, Meter
from pool.cli.open_loop import GRACE_S, Load
from pool.errors import PoolError
from pool.wire.codec import packed

__all__ = ["LAG_S", "Fleet"]

START_S = 30.0  # until all of them are connected
BEGIN_S = 0.1  # from the order to the first job, so that all begin at once
END_S = 5.0
LAG_S = 0.25  # by how much what they tell may be late

Orders = Sequence[dict[str, Any]]


class Fleet:
    """Starts them and waits until they are connected; the end of the block ends them. Raises `PoolError`."""

    def __init__(self, count: int, endpoint: str | None, job: BenchJob) -> None:
        self._told: SimpleQueue[tuple[int, dict[str, Any] | None]] = SimpleQueue()
        self._processes = [self._start(number) for number in range(count)]
        try:
            self._tell([{"endpoint": endpoint, **job.packed()}] * count)
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def run_closed(self, in_flight: int, timeout_s: float | None, meter: Meter) -> None:
        count = len(self._processes)
        shares = [in_flight // count + (number < in_flight % count) for number in range(count)]
        self._run([{"in_flight": share, "timeout_s": timeout_s} for share in shares], meter, END_S)

    def run_open(self, load: Load, meter: Meter) -> None:
        orders = [
            {
                "rate": share.rate,
                "seed": share.seed,
                "offset_s": share.offset_s,
                "timeout_s": share.timeout_s,
                "longest_s": share.course.longest_s + LAG_S,
            }
            for share in load.shares(len(self._processes))
        ]
        self._run(orders, meter, load.timeout_s + GRACE_S + END_S)

    def _run(self, orders: Orders, meter: Meter, end_s: float) -> None:
        begin = time.perf_counter() + BEGIN_S
        ended: list[float] = []
        try:
            self._tell([{**order, "begin": begin, "first": number} for number, order in enumerate(orders)])
            meter.begin(begin)
            while meter.look(time.perf_counter()):
                self._hear(meter, ended)
        except KeyboardInterrupt:
            meter.early = INTERRUPTED
        stopped = time.perf_counter()
        with suppress(KeyboardInterrupt):  # a second Ctrl-C waits no longer
            self._tell([{"stop": True}] * len(self._processes))
            deadline = stopped + (LAG_S if meter.early else end_s)
            while len(ended) < len(self._processes) and time.perf_counter() < deadline:
                self._hear(meter, ended)
                meter.look(time.perf_counter())
        if len(ended) < len(self._processes) and not meter.early:
            meter.early = "a client did not end in time"
        meter.end(stopped, max(ended, default=0.0))

    def _hear(self, meter: Meter, ended: list[float]) -> None:
        try:
            number, message = self._told.get(timeout=LOOK_S)
        except Empty:
            return
        if message is None or "failed" in message:
            meter.early = meter.early or self._death(number, message)
            ended.append(0.0)
        elif "ended" in message:
            ended.append(message["ended"])
        else:
            sent = array("d", message["sent"])
            for due, at in zip(sent[::2], sent[1::2], strict=True):
                meter.sent(due, at)
            for answer in message["answers"]:
                meter.answered(Answer(*answer))

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pool.cli.bench_client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C is this process's to answer
        )
        threading.Thread(target=self._read, args=(number, process), daemon=True).start()
        return process

    def _read(self, number: int, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with (
            suppress(OSError, ValueError, msgpack.UnpackException),
            # Unbuffered: a buffered one waits for more than a message.
            open(process.stdout.fileno(), "rb", buffering=0, closefd=False) as pipe,
        ):
            for message in msgpack.Unpacker(pipe, max_buffer_size=0):
                self._told.put((number, message))
        self._told.put((number, None))

    def _tell(self, orders: Orders) -> None:
        for process, order in zip(self._processes, orders, strict=True):
            assert process.stdin is not None
            with suppress(OSError):  # its end is heard of by `_read`
                process.stdin.write(packed(order))
                process.stdin.flush()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_S
        for _ in self._processes:
            try:
                number, message = self._told.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise PoolError(f"{len(self._processes)} clients were not connected within {START_S:g} s") from None
            if message is None or "failed" in message:
                raise PoolError(self._death(number, message))

    def _death(self, number: int, message: dict[str, Any] | None) -> str:
        if message is not None:
            return str(message["failed"])
        status = self._processes[number].wait(END_S)
        return f"client {number} of {len(self._processes)} died ({_how(status)})"

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(END_S)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _how(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"

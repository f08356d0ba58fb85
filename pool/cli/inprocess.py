"""The model without a pool: a process of its own that runs it, asked for one turn after the other.

The process is `workers.inprocess`, for a client never imports TensorFlow.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from pool.cli.bench_job import BenchJob
from pool.errors import PoolError
from pool.wire.codec import packed

__all__ = ["InProcess", "Turn"]

LOAD_S = 300.0  # TensorFlow's import, and a large model
TURN_S = 60.0  # beyond its own time; one call may be slow
END_S = 5.0
TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Turn:
    seconds: float
    latencies_s: Sequence[float]


class InProcess:
    """Starts it and waits until the model is loaded; the end of the block ends it. Raises `PoolError`.

    `uuids`: of the GPUs that it sees, none for the CPU. `ways`: how it can run the model.
    """

    def __init__(self, job: BenchJob, path: str, uuids: Sequence[str]) -> None:
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "workers.inprocess", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._printed,
            env=environment(os.environ, uuids),
            process_group=0,  # Ctrl-C is this process's to answer
        )
        threading.Thread(target=self._read, daemon=True).start()
        try:
            first = self._ask({**job.packed(), "path": path, "gpus": len(uuids)}, LOAD_S)
            self.ways: Sequence[str] = first["ways"]
        except BaseException:
            self.close()
            raise

    def turn(self, way: str, jobs_a_call: int, seconds: float, warmup_s: float) -> Turn:
        """Runs the model so for so long. Each call has the rows of `jobs_a_call` jobs."""
        order = {"way": way, "jobs_a_call": jobs_a_call, "seconds": seconds, "warmup_s": warmup_s}
        return Turn(**self._ask(order, seconds + warmup_s + TURN_S))

    def _ask(self, order: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(OSError):  # its end is told by `_read`
            self._process.stdin.write(packed(order))
            self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise PoolError(f"in its own process the model did not answer within {timeout_s:g} s") from None
        answer: dict[str, Any] = json.loads(line) if line else {"failed": self._death()}
        if "failed" in answer:
            raise PoolError(f"in its own process: {answer['failed']}")
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put(b"")

    def _death(self) -> str:
        """How it died, with the last line that it printed."""
        status = self._process.wait(END_S)
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        self._printed.seek(max(0, os.fstat(self._printed.fileno()).st_size - TAIL_BYTES))
        lines = self._printed.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
        return f"it died ({how}): {last}"

    def close(self) -> None:
        self._process.kill()
        self._process.wait(END_S)
        for pipe in (self._process.stdin, self._process.stdout, self._printed):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def environment(environ: Mapping[str, str], uuids: Sequence[str]) -> dict[str, str]:
    """A copy in which CUDA shows these GPUs alone; the threads are left to TensorFlow, as in a program of one's own."""
    return {
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **environ,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
    }

"""Clients in processes of their own with one job each in flight, and what the pool spends on each of their jobs."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.line_process import LineProcess, python_module
from benchmarks.processor import Spent, spent
from benchmarks.run import Run
from pool import Client
from support.processes import pid_of

__all__ = ["CROWD", "Crowd", "CrowdTurn", "Stick"]

CROWD = 32
PROCESSES = 2
START_S = 120.0
ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class CrowdTurn:
    """Jobs a second, the median of a job in seconds, and its seconds and wake-ups in clients, pool and workers."""

    rate: float
    p50: float
    clients: tuple[float, float]
    pool: tuple[float, float]
    lanes: tuple[float, float]

    @property
    def processor_s(self) -> float:
        """Of a job, in all processes."""
        return self.clients[0] + self.pool[0] + self.lanes[0]

    @property
    def pool_s(self) -> float:
        """Processor seconds of the one in the middle."""
        return self.pool[0]

    @property
    def wake_ups(self) -> float:
        return self.clients[1] + self.pool[1] + self.lanes[1]


class _Processes:
    """Started, asked all at once, and ended."""

    def __init__(self, argvs: list[list[str]], folder: Path, name: str, env: Mapping[str, str] | None = None) -> None:
        with ExitStack() as stack:
            self._processes = []
            for number, argv in enumerate(argvs):
                process = LineProcess(argv, folder / f"{name}-{number}.log", env)
                stack.callback(process.end)
                self._processes.append(process)
            for process in self._processes:
                process.answer(START_S)
            self._stack = stack.pop_all()

    def ask(self, seconds: float) -> list[dict[str, Any]]:
        for process in self._processes:
            process.send({"seconds": seconds})
        return [process.answer(seconds + ANSWER_S) for process in self._processes]

    def end(self) -> None:
        self._stack.close()


class Crowd:
    """Of `clients` clients in `processes` processes, of a running pool. For a `with` block."""

    def __init__(self, run: Run, client: Client, clients: int = CROWD, processes: int = PROCESSES) -> None:
        self._client = client
        files = [str(path) for path in run.files("mlp")]
        argv = python_module("benchmarks.crowd_process", client.endpoint, *files, str(clients // processes))
        self._processes = _Processes([argv] * processes, run.folder, f"crowd-{clients}")

    def turn(self, seconds: float) -> CrowdTurn:
        status = self._client.status()
        pids = (status.pid,), tuple(pid_of(slot) for slot in status.slots)
        before = [spent(*of) for of in pids]
        told = self._processes.ask(seconds)
        after = [spent(*of) for of in pids]
        jobs = sum(each["jobs"] for each in told)
        pool, lanes = (end.since(begin) for begin, end in zip(before, after, strict=True))
        clients = Spent(
            sum(each["processor_s"] * each["jobs"] for each in told),
            round(sum(each["wake_ups"] * each["jobs"] for each in told)),
        )
        rate, p50 = sum(each["rate"] for each in told), max(each["p50"] for each in told)
        return CrowdTurn(rate, p50, clients.each(jobs), pool.each(jobs), lanes.each(jobs))

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._processes.end()


class Stick:
    """The bare path beside it: `what` is `lone` or `many`. For a `with` block."""

    def __init__(self, run: Run, folder: Path, what: str) -> None:
        argv = python_module("benchmarks.stick_process", str(folder), what)
        place = run.folder / what
        place.mkdir(exist_ok=True)
        # Its sockets are named after the folder for temporary files: another's stick may run on this machine.
        env = {"TMPDIR": str(place), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._processes = _Processes([argv], run.folder, f"stick-{what}", env)

    def turn(self, seconds: float) -> CrowdTurn:
        (told,) = self._processes.ask(seconds)
        costs = [(told[f"{of}processor_s"], told[f"{of}wake_ups"]) for of in ("", "middle_", "lane_")]
        return CrowdTurn(told["rate"], told["p50"], *costs)

    def __enter__(self) -> "Stick":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._processes.end()

"""Runs the loops of a benchmark: in this process, or in one for each of several clients."""

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from pool.cli.bench_fleet import LAG_S, Fleet
from pool.cli.bench_job import BenchJob
from pool.cli.closed_loop import run_closed_loop
from pool.cli.measured import Measured
from pool.cli.meter import Meter, Show
from pool.cli.open_loop import Load, run_open_loop
from pool.cli.steadiness import Course
from pool.client.client import Client

__all__ = ["Runner"]


class Runner:
    """The end of the block ends the clients' processes, if there are any."""

    def __init__(self, client: Client, clients: int, endpoint: str | None, job: BenchJob) -> None:
        """Raises `PoolError` where the clients' processes cannot be had."""
        self._client = client
        self._job = job
        self._stack = ExitStack()
        self._fleet = self._stack.enter_context(Fleet(clients, endpoint, job)) if clients > 1 else None

    def closed(self, in_flight: int, course: Course, timeout_s: float | None, show: Show) -> Measured:
        if self._fleet is not None:
            meter = Meter(course, by_arrival=False, show=show, lag_s=LAG_S)
            self._fleet.run_closed(in_flight, timeout_s, meter)
        else:
            meter = Meter(course, by_arrival=False, show=show)
            run_closed_loop(self._job.submitter(self._client, timeout_s), in_flight, meter)
        return meter.measured

    def open(self, load: Load, show: Show) -> Measured:
        """The pool is empty when it returns."""
        if self._fleet is not None:
            meter = Meter(load.course, by_arrival=True, show=show, lag_s=LAG_S)
            self._fleet.run_open(load, meter)
        else:
            meter = Meter(load.course, by_arrival=True, show=show)
            run_open_loop(self._job.submitter(self._client, load.timeout_s), load, meter)
        return meter.measured

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

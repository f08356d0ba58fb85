"""`echo64`: 64 MiB in, one number out, set against one copy of 64 MiB."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.aims import RUN_64, RUN_64_FROM_EMPTY
from benchmarks.cases import Array, Case
from benchmarks.models import ECHO_VALUES
from pool import Client

__all__ = ["COPY", "FROM_EMPTY_SMALL", "ways"]

COPY, FROM_EMPTY_SMALL = "one copy of 64 MiB", "client.run from client.empty, 1 MiB"
TIMES = 7


def ways(client: Client, case: Case) -> dict[str, Callable[[], float]]:
    """Each gives the median of a few, in seconds."""
    source = np.ones((1, ECHO_VALUES), np.float32)
    target = np.empty_like(source)

    def copy() -> None:
        np.copyto(target, source)

    def run(array: Array) -> Callable[[], None]:
        def job() -> None:
            array[0, 0] += 1  # an old answer would be a wrong one
            answer = client.run(case.name, array, outputs=[case.output])[case.output]
            case.check(answer, array[:, 0] + array[:, -1])

        return job

    jobs: dict[str, Callable[[], None]] = {COPY: copy, RUN_64: run(source)}
    for name, values in ((RUN_64_FROM_EMPTY, ECHO_VALUES), (FROM_EMPTY_SMALL, ECHO_VALUES // 64)):
        array: Any = client.empty((1, values), np.float32)
        array[...] = 1
        jobs[name] = run(array)
    return {name: _median_of(job) for name, job in jobs.items()}


def _median_of(job: Callable[[], None]) -> Callable[[], float]:
    def turn() -> float:
        taken = []
        for _ in range(TIMES):
            began = time.perf_counter()
            job()
            taken.append(time.perf_counter() - began)
        return statistics.median(taken)

    return turn

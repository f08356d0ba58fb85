"""What the pool's counters cost a job: `python tests/benchmarks/counting.py`, in microseconds, the least of rounds.

Of a job alone, and of one in a batch of 32. The times are those of the very functions that the pool's loop calls.
"""

import sys
import timeit
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder above: the names here would hide others

from pool.core.jobs import Job
from pool.core.policy import ModelPolicy
from pool.core.queue import Client, Model

__all__ = ["cost_s"]

ROUNDS, TIMES = 20, 20_000


def cost_s(jobs: int) -> float:
    """Of a job, where so many of them are a batch."""
    model = Model("m", ModelPolicy())
    line = model.line(None)
    key = line.key(None, None, b"form")
    job = Job(Client(b"client"), 7, 70, line, key, 1, 0, 5.0, 1, "payload", 99.9973, 104.9973)
    counts = model.tally.of(None)

    def batch() -> None:
        for _ in range(jobs):
            counts.result(job, 99.9981, 100.0)
        counts.batch(jobs, jobs, 0.0004)

    return min(timeit.repeat(batch, number=TIMES // jobs, repeat=ROUNDS)) / (TIMES // jobs * jobs)


if __name__ == "__main__":
    for jobs in (1, 32):
        print(f"of a job in a batch of {jobs}: {cost_s(jobs) * 1e6:.2f} µs")  # noqa: T201  # a person has asked for it

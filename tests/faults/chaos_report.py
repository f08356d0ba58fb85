"""What the chaos run has done to whom, and how fast the pool was meanwhile."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from faults.chaos_crowd import Sent

__all__ = ["Done", "Kill", "report"]

RECOVERY_S = 1.0


@dataclass(slots=True)
class Kill:
    slot: int
    pid: int
    at: float


@dataclass(slots=True)
class Done:
    """What was done to whom. `deaths`: how many workers may have died of it, one by one or with their pool."""

    kills: list[Kill] = field(default_factory=list)
    deaths: int = 0
    clients: Counter[str] = field(default_factory=Counter)
    pools: int = 0
    changes: Counter[str] = field(default_factory=Counter)
    """What was reloaded, loaded and unloaded."""


def report(seed: int, done: Done, jobs: Sequence[Sent]) -> None:
    """`jobs`: those that tell how fast the pool was."""
    answered = [job for job in jobs if job.ending is not None]
    recovering = {
        job.number: any(job.began < kill.at + RECOVERY_S and job.ended > kill.at for kill in done.kills)
        for job in answered
    }
    recovery, calm = ([job for job in answered if recovering[job.number] is which] for which in (True, False))
    failed = Counter(job.error for job in answered if job.error is not None)
    served = Counter(job.kind for job in answered if job.error is None)
    nexts = next_answers_s(done.kills, answered)
    slowest = f"{np.median(nexts):.2f} s in the median, {max(nexts):.2f} s at most" if nexts else "none"
    print(  # noqa: T201  # `pytest -s` shows it
        f"\nchaos, seed {seed}: {len(jobs)} jobs; {len(done.kills)} SIGKILL of {done.deaths} deaths of workers,"
        f" {done.pools} pools, clients: {dict(done.clients)}, changes: {dict(done.changes)};"
        f" served: {dict(served)}; failed: {dict(failed)};"
        f" p99 {p99_ms(recovery):.0f} ms within {RECOVERY_S:g} s of a SIGKILL, else {p99_ms(calm):.0f} ms;"
        f" from SIGKILL to the slot's next answer {slowest}"
    )


def next_answers_s(kills: Sequence[Kill], jobs: Sequence[Sent]) -> list[float]:
    """From each SIGKILL to the first answer that another worker of its slot gave."""
    found = []
    for kill in kills:
        others = (
            job.ended - kill.at
            for job in jobs
            if job.kind == "sleep"
            and job.ending is not None
            and job.ending.get("slot") == kill.slot
            and job.ended > kill.at
            and job.ending["pid"][0] != kill.pid
        )
        if (first := min(others, default=None)) is not None:
            found.append(first)
    return found


def p99_ms(jobs: Sequence[Sent]) -> float:
    return float(np.percentile([job.took_s for job in jobs], 99)) * 1000 if jobs else float("nan")

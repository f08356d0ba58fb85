"""What the pool's process and the client hold after many jobs, against what they held after the first tenth of them."""

import os
from collections.abc import Iterator
from typing import Any

from benchmarks.cases import Array
from benchmarks.turns import Turns
from pool import Client
from pool.serve.status import resident_bytes

__all__ = ["MOST_BYTES", "held"]

MOST_BYTES = 80_000_000
CHECKED_EVERY = 997  # answers: a prime, so that each row has its turn


def held(client: Client, turns: Turns, jobs: int) -> tuple[list[int], list[int]]:
    """Bytes of the pool's process and of this one, after a tenth of the jobs and after all. Each job is one row."""
    pids = [int(client.status().pid), os.getpid()]
    case, rows = turns.case, turns.rows
    after: list[list[int]] = []

    def given() -> Iterator[Array]:
        for number in range(jobs):
            yield rows[number % len(rows)]

    answers: Iterator[dict[str, Any]] = client.map(case.name, given(), signature=case.signature, in_flight=256)
    for number, answer in enumerate(answers, 1):
        if number % CHECKED_EVERY == 0:
            case.check(answer[case.output], turns.expected[(number - 1) % len(rows)])
        if number in (jobs // 10, jobs):
            after.append([resident_bytes(pid) or 0 for pid in pids])
    pool, mine = zip(*after, strict=True)
    return list(pool), list(mine)

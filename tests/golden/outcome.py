"""What came of a program, in a few lines of text, and what may differ between two cores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pool.wire.faults import Fault

__all__ = ["CANCELLED", "DONE", "LETTERS", "UNANSWERED", "WRONG", "Outcome"]

LETTERS = {
    Fault.INVALID_INPUT: "i",
    Fault.MODEL_NOT_FOUND: "n",
    Fault.MODEL_FAILED: "m",
    Fault.OUT_OF_MEMORY: "o",
    Fault.DEADLINE_EXCEEDED: "x",
    Fault.OVERLOADED: "v",
    Fault.WORKER_LOST: "w",
    Fault.QUARANTINED: "q",
    Fault.STATEFUL_WORKER_LOST: "s",
    Fault.POOL_STOPPING: "p",
}
DONE, CANCELLED, UNANSWERED, WRONG = "d", "c", "-", "!"
MURKY = "."
SHARE = 0.05  # of a share that it may differ by


@dataclass(frozen=True, slots=True)
class Outcome:
    """`answers`, `attempts`: a character for each job. An attempt that others shared is murky, and is not compared.

    `orders`: the jobs of a client that a stateful model ran, in the order in which it did. `shares`: of a model, of
    the devices' time; of a client, of the model's rows.
    """

    answers: str
    attempts: str
    orders: Mapping[str, Sequence[int]]
    shares: Mapping[str, float]

    @classmethod
    def of(
        cls,
        answers: Mapping[int, str],
        attempts: Mapping[int, int],
        murky: Collection[int],
        orders: Mapping[str, Sequence[int]],
    ) -> Outcome:
        return cls(
            "".join(answers[job] for job in sorted(answers)),
            "".join(MURKY if job in murky else str(min(9, attempts[job])) for job in sorted(answers)),
            {name: list(orders[name]) for name in sorted(orders)},
            {},
        )

    def differences(self, other: Outcome) -> list[str]:
        """What is another outcome now, in `other`."""
        found = []
        for what, ours, theirs in (
            ("answer", self.answers, other.answers),
            ("attempts", self.attempts, other.attempts),
        ):
            if len(ours) != len(theirs):
                found.append(f"{len(theirs)} jobs, not {len(ours)}")
            found += [
                f"{what} of job {number}: {now}, not {before}"
                for number, (before, now) in enumerate(zip(ours, theirs, strict=False), start=1)
                if before != now and MURKY not in (before, now)
            ]
        for name in sorted({*self.orders, *other.orders}):
            before, now = list(self.orders.get(name, [])), list(other.orders.get(name, []))
            if before != now:
                found.append(f"order of {name}: {now}, not {before}")
        for name in sorted({*self.shares, *other.shares}):
            share, other_share = self.shares.get(name, 0.0), other.shares.get(name, 0.0)
            if abs(share - other_share) > SHARE * share:
                found.append(f"share of {name}: {other_share:.3f}, not {share:.3f}")
        return found

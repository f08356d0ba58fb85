"""What optimizations are tried with: recorded requests, or values made of a seed. Zeros hide too much."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pool.wire.signatures import Refused, Signature
from pool.wire.tensors import Array
from workers.made_up import made_up
from workers.tf.warm_up import first_recorded, rehearsals

__all__ = ["NoTrial", "TrialRun", "trial_runs"]

Feeds = Mapping[str, Array]
Run = Callable[[str, Feeds, Sequence[str]], dict[str, Array]]


class NoTrial(Exception):
    """Why a model cannot be tried: one line."""


@dataclass(frozen=True, slots=True)
class TrialRun:
    """`right`: what the plain model makes of it."""

    signature: str
    rows: int | None
    feeds: Feeds
    right: Mapping[str, Array]


def trial_runs(
    run: Run, signatures: Mapping[str, Signature], samples: Path | None, sizes: Sequence[int]
) -> list[TrialRun]:
    """One of each signature at each of these numbers of rows, run plainly.

    Raises `NoTrial` where a signature takes neither what was recorded nor what is made up, and `ProcessUnusable`.
    """
    recorded = first_recorded(samples, signatures)
    found: list[TrialRun] = []
    for name, signature in signatures.items():
        outputs = tuple(signature.outputs)
        before = len(found)
        for each in rehearsals(signature, sizes, recorded.get(name)):
            given = [each.feeds] if name in recorded else made_up(each.feeds)
            for feeds in given:
                try:
                    right = run(name, feeds, outputs)
                except Refused:
                    continue
                # The next run may write what was fetched.
                found.append(TrialRun(name, each.rows, feeds, {key: array.copy() for key, array in right.items()}))
                break
        if len(found) == before:
            raise NoTrial(f"signature {name!r} accepts no generated values; record requests to try it with")
    return found

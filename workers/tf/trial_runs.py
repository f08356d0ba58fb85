"""What speed-ups are tried with: recorded requests, or values made of a seed. Zeros hide too much."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pool.wire.signatures import Refused, Signature
from pool.wire.tensors import Array
from workers.tf.warm_up import first_recorded, rehearsals

__all__ = ["NoTrial", "TrialRun", "trial_runs"]

_SEED = 20261121
_WORDS = (b"", b"a", b"word", b"two words", b"0", b"1.5", b"import os\n")

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
            given = [each.feeds] if name in recorded else _made_up(each.feeds)
            for feeds in given:
                try:
                    right = run(name, feeds, outputs)
                except Refused:
                    continue
                # The next run may write what was fetched.
                found.append(TrialRun(name, each.rows, feeds, {key: array.copy() for key, array in right.items()}))
                break
        if len(found) == before:
            raise NoTrial(f"signature {name!r} takes no values that are made up for it: record requests to try it with")
    return found


def _made_up(zeros: Feeds) -> Iterator[Feeds]:
    """Values of these shapes: first of some width, then such as an index, a word's number or a flag may be."""
    for width in (10, 2):
        numbers = np.random.default_rng(_SEED)
        yield {name: _values(array, numbers, width) for name, array in zeros.items()}


def _values(zeros: Array, numbers: np.random.Generator, width: int) -> Array:
    if zeros.dtype.hasobject:
        flat = np.empty(zeros.size, object)
        flat[:] = [_WORDS[index] for index in numbers.integers(0, len(_WORDS), zeros.size)]
        return flat.reshape(zeros.shape)
    made: Any = numbers.standard_normal(zeros.shape)
    if zeros.dtype.kind in "biu" or "int" in zeros.dtype.name:
        made = (
            numbers.integers(0, width, zeros.shape) % 2
            if zeros.dtype.kind == "b"
            else numbers.integers(0, width, zeros.shape)
        )
    array = np.copy(zeros)
    array[...] = np.asarray(made).astype(zeros.dtype)
    return array

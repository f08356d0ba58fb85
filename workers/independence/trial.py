"""Whether rows come out the same alone, in pairs and in full batches: tried when a model warms up."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from pool.wire.faults import Fault
from pool.wire.independence import Trial
from pool.wire.signatures import Refused
from pool.wire.tensors import Array
from workers.batch import rows_differ
from workers.independence.comparison import difference

__all__ = ["Feeds", "RunRows", "try_rows"]

Feeds = Mapping[str, Array]
RunRows = Callable[[Feeds], Mapping[str, Array]]

_SEED = 20261122
_TEXT_CHARS = 300


def try_rows(run: RunRows, outputs: Sequence[str], given: Iterator[Feeds], ends: float) -> Trial:
    """Runs what is given, each of at least two rows, in several companies. `ends`: when there is no more time for it.

    Raises `ProcessUnusable` as the runs do, and nothing else.
    """
    why = "no sample values could be generated for it"
    agreed = False
    for feeds in given:
        try:
            differs = _apart(run, feeds, ends)
        except Refused as error:
            why = one_line(error)
            continue
        if differs:
            return Trial(differs=differs)
        agreed = True
        if time.monotonic() >= ends:
            break
    return Trial(outputs=tuple(sorted(outputs))) if agreed else Trial(untried=why)


def one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:_TEXT_CHARS]


def _apart(run: RunRows, feeds: Feeds, ends: float) -> str:
    """What did not agree, or "". Raises `Refused` where the rows cannot be run together at all."""
    rows = len(next(iter(feeds.values())))
    whole = run(feeds)
    if (amiss := rows_differ(whole, rows)) is not None:
        return amiss
    if found := difference(run(feeds), whole, whole):
        return f"two runs of the same rows gave different results: {found}"
    for number, company in enumerate(_companies(rows)):
        if number > 1 and time.monotonic() >= ends:
            break
        try:
            among = run({name: array[company] for name, array in feeds.items()})
        except Refused as error:
            if error.fault is Fault.OUT_OF_MEMORY:
                continue
            return f"{len(company)} rows failed by themselves but ran among {rows}: {one_line(error)}"
        if (amiss := rows_differ(among, len(company))) is not None:
            return amiss
        if found := difference(among, {name: array[company] for name, array in whole.items()}, whole):
            return found
    return ""


def _companies(rows: int) -> Iterator[Array]:
    """Which rows run together. The first two tell the most."""
    numbers = np.random.default_rng(_SEED)
    order = numbers.permutation(rows)
    yield order
    yield order[:1]
    yield order[-2:]
    yield np.sort(order[: max(1, rows // 2)])
    for row in range(rows):
        yield np.array([row])
    for first in range(0, rows - 1, 2):
        yield order[first : first + 2]

"""Which runs are kept to be compared: those of signatures that are not proven yet, and a small sample of all others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from pool.wire.independence import Judgement
from pool.wire.signatures import ModelInfo
from pool.wire.tensors import Array
from workers.independence.known import Known

__all__ = ["SAMPLE_SHARE", "Sample", "Sampler"]

SAMPLE_SHARE = 0.001  # of the time of joined runs goes into comparing them, once the rows are proven independent
MOST_WAYS = 1024  # that are remembered: callers choose the outputs, and their order
MOST_BYTES = 64 << 20  # of what is fed; a larger run is not kept


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows that were run, in memory of their own, and what they gave. `proven`: they ran joined."""

    model: str
    identity: str
    signature: str
    outputs: tuple[str, ...]
    feeds: Mapping[str, Array]
    answers: Mapping[str, Array]
    proven: bool
    amiss: str = ""
    """What shows already that axis 0 does not count independent rows, or ""."""
    run_s: float = 0.0
    """How long they ran."""

    @property
    def rows(self) -> int:
        return len(next(iter(self.feeds.values())))


class Way(Enum):
    """Which runs of a signature are kept."""

    NEVER = "nothing is to be found out"
    ALWAYS = "it is not proven yet"
    SOMETIMES = "a sample, as a gate may open late"


class Sampler:
    """Of one lane."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._credit_s: dict[str, float] = {}  # by model
        self._ways: dict[tuple[str, str, tuple[str, ...]], Way] = {}
        self._seen = 0  # changes of what is known

    def wanted(self, info: ModelInfo, signature: str, outputs: tuple[str, ...], joined: bool, run_s: float) -> bool:
        """Whether a run that took so long is to be kept. `joined`: its rows were joined, cut or padded."""
        if self._known.changes != self._seen:
            self._seen = self._known.changes
            self._ways.clear()
        key = (info.name, signature, outputs)
        way = self._ways.get(key)
        if way is None:
            way = self._way(info, signature, outputs)
            if len(self._ways) < MOST_WAYS:
                self._ways[key] = way
        if way is Way.SOMETIMES and joined:
            self._credit_s[info.name] = self._credit_s.get(info.name, 0.0) + SAMPLE_SHARE * run_s
            return self._credit_s[info.name] >= 0.0
        return way is Way.ALWAYS and not joined

    def _way(self, info: ModelInfo, signature: str, outputs: Sequence[str]) -> "Way":
        judgement = self._known.judgement(info.name, signature, outputs)
        if not self._known.is_open(info.name) or judgement is Judgement.DEPENDENT:
            return Way.NEVER
        if not self._known.marks(info.name).are_kept:
            return Way.NEVER  # a comparison that ends its worker would be repeated for ever
        if not info.has_rows(signature, outputs):
            return Way.NEVER
        return Way.SOMETIMES if judgement is Judgement.PROVEN else Way.ALWAYS

    def spent(self, model: str, seconds: float) -> None:
        """Comparing a sample of a proven signature took so long."""
        self._credit_s[model] = self._credit_s.get(model, 0.0) - seconds

    def sample(
        self,
        info: ModelInfo,
        signature: str,
        outputs: Sequence[str],
        feeds: Mapping[str, Array],
        fetched: Mapping[str, Array],
        rows: int | None,
        run_s: float = 0.0,
    ) -> Sample | None:
        """A copy of what was fed and given; None of what is too large. `rows`: so many count, None: all of them.

        `run_s`: how long the run took.
        Raises `MemoryError` where there is none for the copy.
        """
        if sum(array.nbytes for array in feeds.values()) > MOST_BYTES or not all(
            array.ndim for array in feeds.values()
        ):
            return None
        counts = {len(array) for array in feeds.values()}
        found = counts.pop() if len(counts) == 1 else None
        amiss = ""
        if found is None:
            sizes = ", ".join(f"{name!r} has {len(array)}" for name, array in feeds.items())
            amiss = f"a job's inputs were not of the same size on axis 0: {sizes}"
        elif not found or found == self._known.most_rows(info.name) == 1:
            return None  # a row that never has company; a copy of each for ever costs more than its run
        else:
            for name, array in fetched.items():
                if array.shape[:1] != (found,):
                    given = f"{len(array)} rows" if array.ndim else "no rows"
                    amiss = f"output {name!r} came back with {given} where {found} were fed"
        keep = slice(rows)
        return Sample(
            info.name,
            self._known.identity(info.name),
            signature,
            tuple(outputs),
            {} if amiss else {name: np.array(array[keep]) for name, array in feeds.items()},
            {} if amiss else {name: np.array(array[keep]) for name, array in fetched.items()},
            rows is not None,
            amiss,
            run_s,
        )

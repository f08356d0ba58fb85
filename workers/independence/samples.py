"""Which runs are kept to be compared: those of signatures that are not proven yet, and a small sample of all others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pool.wire.independence import Judgement
from pool.wire.signatures import ModelInfo
from pool.wire.tensors import Array
from workers.batch import rows_differ
from workers.independence.known import Known

__all__ = ["NOT_KEPT", "SAMPLE_SHARE", "Sample", "Sampler", "Watch"]

SAMPLE_SHARE = 0.001  # of the time of joined runs goes into comparing them, once the rows are proven independent
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


class Watch:
    """Whether a run is kept, as far as that follows from what is known now.

    `alone`: one whose rows ran as they came may be; `joined`: one whose rows were joined, cut or padded may be. Once
    all is proven or decided, the one that counts is False for most runs, and no more is asked.
    """

    __slots__ = ("alone", "due_s", "joined", "ran_s")

    def __init__(self, alone: bool, joined: bool) -> None:
        self.alone = alone
        self.joined = joined
        self.due_s = 0.0
        self.ran_s = 0.0

    def wanted(self, run_s: float) -> bool:
        """Of a run that may be kept, and took so long."""
        self.ran_s += run_s
        return self.ran_s >= self.due_s

    def spent(self, seconds: float) -> None:
        """Comparing a sample took so long."""
        self.due_s += seconds / SAMPLE_SHARE


NOT_KEPT = Watch(alone=False, joined=False)


class Sampler:
    """Of one lane."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self._always = Watch(alone=True, joined=False)
        self._sometimes: dict[str, Watch] = {}  # by model

    def watch(self, info: ModelInfo, signature: str, outputs: Sequence[str]) -> Watch:
        """For runs for these outputs; it holds until `Known.changes`."""
        judgement = self.known.judgement(info.name, signature, outputs)
        if not self.known.is_open(info.name) or judgement is Judgement.DEPENDENT:
            return NOT_KEPT  # nothing is to be found out
        if not self.known.marks(info.name).are_kept:
            return NOT_KEPT  # a comparison that ends its worker would be repeated for ever
        if not info.has_rows(signature, outputs):
            return NOT_KEPT
        return self._share(info.name) if judgement is Judgement.PROVEN else self._always

    def _share(self, model: str) -> Watch:
        """For a sample of what is proven, as a gate may open late."""
        return self._sometimes.setdefault(model, Watch(alone=False, joined=True))

    def spent(self, model: str, seconds: float) -> None:
        """Comparing a sample of a proven signature took so long."""
        self._share(model).spent(seconds)

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
        elif not found or found == self.known.most_rows(info.name) == 1:
            return None  # a row that never has company; a copy of each for ever costs more than its run
        else:
            amiss = rows_differ(fetched, found) or ""
        keep = slice(rows)
        return Sample(
            info.name,
            self.known.identity(info.name),
            signature,
            tuple(outputs),
            {} if amiss else {name: np.array(array[keep]) for name, array in feeds.items()},
            {} if amiss else {name: np.array(array[keep]) for name, array in fetched.items()},
            rows is not None,
            amiss,
            run_s,
        )

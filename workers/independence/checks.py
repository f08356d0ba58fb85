"""Runs rows of real jobs a second time, in other company, while the lane has nothing else to do.

    Sample ─► companies: its rows with those of earlier jobs, and one alone; or two halves of a joined run
           ─► one run at a time, whenever the lane is idle, or after a few batches where it never is ─► RowsCompared

A job is answered before its rows are compared, so that costs it nothing; the next one waits for a run at most. What
runs together for the first time may end the process, so it is written down before, see `workers.trial_marks`.
"""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from pool.wire.faults import Fault
from pool.wire.independence import RowsCompared
from pool.wire.signatures import Refused
from pool.wire.tensors import Array
from workers.backend import ProcessUnusable
from workers.batch import rows_differ
from workers.independence.comparison import difference
from workers.independence.samples import Sample, Sampler
from workers.independence.trial import one_line
from workers.trial_marks import EndedBefore, TrialMarks, Unmarked

__all__ = ["IDLE_S", "Checks", "RunSample"]

log = logging.getLogger("workers.independence")

RunSample = Callable[[Sample, Mapping[str, Array]], Mapping[str, Array]]
"""Runs rows for the outputs of a sample."""

IDLE_S = 0.01  # without work: a lane is idle
PATIENCE = 8  # batches that a comparison waits for a lane that never is
MOST_COMPANY = 8  # rows of earlier jobs of one form
MOST_COMPANY_BYTES = 1 << 20
MOST_FORMS = 16
QUICK_S = 0.02  # what a comparison may take of a lane at a time, if the job that it is of took less
MOST_ROWS = 64  # of a job that are compared before the signature is proven: the others are like them


@dataclass(slots=True)
class Check:
    """A sample that is being compared. `companies`: which rows, of the sample and of its company, run together."""

    sample: Sample
    feeds: Mapping[str, Array]
    answers: Mapping[str, Array]
    companies: deque[Array]
    distinct: bool


class Checks:
    """Of one lane, used by its thread alone."""

    def __init__(
        self,
        sampler: Sampler,
        run: RunSample,
        tell: Callable[[RowsCompared], None],
        marks: Callable[[str], TrialMarks],
        seed: int,
    ) -> None:
        """`marks`: those of a model."""
        self._sampler = sampler
        self._marks = marks
        self._run = run
        self._tell = tell
        self._numbers = np.random.default_rng(seed)
        self._company: OrderedDict[object, tuple[Mapping[str, Array], Mapping[str, Array]]] = OrderedDict()
        self._check: Check | None = None
        self._passed = 0  # batches since the last run of the check
        self.waits = False
        """Whether there is something to compare; what else is sampled meanwhile is let go."""

    @property
    def overdue(self) -> bool:
        return self._check is not None and self._passed >= PATIENCE

    def served(self, sample: Sample | None, most_rows: int) -> None:
        """The lane has answered a batch, of which a sample was kept or not. Never raises.

        Where nothing waits and nothing was kept, it makes no difference whether this is called.
        """
        self._passed += 1
        if sample is not None and self._check is None:
            with self._contained(sample):
                self._take(sample, most_rows)

    def step(self) -> None:
        """One run, in which rows of the sample have other company. Raises `ProcessUnusable`."""
        check = self._check
        if check is not None:
            self._passed = 0
            with self._contained(check.sample):
                self._go_on(check)

    @contextmanager
    def _contained(self, sample: Sample) -> Iterator[None]:
        """What goes wrong here is a fault of ours: it ends joining, and not the lane. Nobody waits for it."""
        try:
            yield
        except ProcessUnusable:
            raise
        except MemoryError:
            self._begin(None)  # nothing was found out
        except Exception as error:
            self._begin(None)
            log.error(
                "model %s: rows of signature %s cannot be compared", sample.model, sample.signature, exc_info=error
            )
            why = f"they cannot be compared: {type(error).__name__}: {one_line(error)}"
            self._tell(_compared(sample, why, True))

    def _take(self, sample: Sample, most_rows: int) -> None:
        if sample.amiss:
            self._tell(_compared(sample, sample.amiss, True))
            return
        self._passed = 0
        if sample.proven:
            self._begin(self._apart(sample))
        elif (amiss := self._misfit(sample)) is not None:
            self._tell(_compared(sample, amiss, True))
        else:
            self._begin(self._among(sample, most_rows))

    def _begin(self, check: Check | None) -> None:
        """None: there is nothing to compare any more."""
        self._check = check
        self.waits = check is not None

    def _go_on(self, check: Check) -> None:
        sample = check.sample
        began = time.monotonic()
        found = self._differs(check) if sample.proven else self._differs_marked(check)
        if sample.proven:
            self._sampler.spent(sample.model, time.monotonic() - began)
        if found is None:
            self._begin(None)  # nothing was found out
        elif found or not check.companies:
            self._begin(None)
            if found or not sample.proven:
                self._tell(_compared(sample, found, check.distinct))
            if not (found or sample.proven):
                self._keep(sample)

    def _differs_marked(self, check: Check) -> str | None:
        """As `_differs`; None, too, while another lane or worker compares rows of this signature."""
        try:
            with self._marks(check.sample.model).trying(f"rows of {check.sample.signature} together", one_of_many=True):
                return self._differs(check)
        except Unmarked:
            return None
        except EndedBefore as ended:
            return f"{ended.deaths} workers died while they ran rows together"

    def _differs(self, check: Check) -> str | None:
        """What did not agree, or ""; None where memory had no room for so many rows."""
        company = check.companies.popleft()
        try:
            found = self._run(check.sample, {name: array[company] for name, array in check.feeds.items()})
        except Refused as error:
            if error.fault is Fault.OUT_OF_MEMORY or self._again(check.sample) is None:
                return None
            return f"{len(company)} rows failed together but not apart: {one_line(error)}"
        if (amiss := rows_differ(found, len(company))) is not None:
            return amiss
        if not difference(found, {name: array[company] for name, array in check.answers.items()}, check.answers):
            return ""
        return self._confirmed(check, company, found)

    def _confirmed(self, check: Check, company: Array, found: Mapping[str, Array]) -> str | None:
        """What did not agree, by another run of the sample as it is; None if that says nothing."""
        sample = check.sample
        if (again := self._again(sample)) is None:
            return None
        if (amiss := rows_differ(again, sample.rows)) is not None:
            return amiss
        answers = {name: np.concatenate([array, check.answers[name][sample.rows :]]) for name, array in again.items()}
        return difference(found, {name: array[company] for name, array in answers.items()}, answers)

    def _again(self, sample: Sample) -> Mapping[str, Array] | None:
        """The answers to its rows as they are now; None if they do not run.

        A client that writes its memory while a job runs has other rows answered than were copied: no fault of a model.
        """
        try:
            return self._run(sample, sample.feeds)
        except Refused:
            return None

    def _misfit(self, sample: Sample) -> str | None:
        """What shows without a run that its rows could not be joined with those of earlier jobs."""
        company = self._company.get(_form(sample))
        if company is None:
            return None
        for name, array in sample.answers.items():
            if (other := company[1][name].shape[1:]) != array.shape[1:]:
                return (
                    f"output {name!r} has rows of shape {list(array.shape[1:])} in one job and {list(other)} in another"
                )
        return None

    def _among(self, sample: Sample, most_rows: int) -> Check | None:
        """Rows of the sample among those of earlier jobs, or twice where there are none; and one of them alone."""
        feeds, answers = sample.feeds, sample.answers
        most_rows = min(most_rows, _rows_for(sample))
        rows = self._numbers.permutation(sample.rows)[: min(MOST_ROWS, most_rows)]
        company = self._company.get(_form(sample))
        if company is not None:
            feeds = {name: _after(array, company[0][name]) for name, array in feeds.items()}
            answers = {name: _after(array, company[1][name]) for name, array in answers.items()}
            others = np.arange(sample.rows, sample.rows + len(next(iter(company[0].values()))))
        else:
            others = rows[:1]
        others = self._numbers.permutation(others)[: max(1, most_rows // 2, most_rows - len(rows))]
        own = rows[: max(1, most_rows - len(others))]
        together = self._numbers.permutation(np.concatenate([own, others])[:most_rows])
        companies = deque([together] if most_rows > 1 else [])
        if sample.rows > 1:
            companies.append(rows[:1])
        return Check(sample, feeds, answers, companies, _is_distinct(feeds, together)) if companies else None

    def _apart(self, sample: Sample) -> Check:
        """All rows of a joined run, in two halves, each row in one of them; and one alone, if neither half is.

        What opens a gate may be in both halves, which then agree, though the rows of other jobs came out otherwise.
        """
        order = self._numbers.permutation(sample.rows)
        companies = [half for half in np.array_split(order, 2) if len(half)]
        if len(companies[-1]) > 1:
            companies.append(self._numbers.permutation(order)[:1])
        return Check(sample, sample.feeds, sample.answers, deque(companies), True)

    def _keep(self, sample: Sample) -> None:
        """A few of its rows are company for later ones of the same form."""
        form = _form(sample)
        size_bytes = sum(array.nbytes for array in (*sample.feeds.values(), *sample.answers.values())) / sample.rows
        most = int(min(MOST_COMPANY, MOST_COMPANY_BYTES // (size_bytes + 1)))
        if not most:
            return
        few = self._numbers.permutation(sample.rows)[:2]
        feeds = {name: array[few] for name, array in sample.feeds.items()}
        answers = {name: array[few] for name, array in sample.answers.items()}
        if (kept := self._company.pop(form, None)) is not None:
            feeds = {name: _after(array, kept[0][name])[:most] for name, array in feeds.items()}
            answers = {name: _after(array, kept[1][name])[:most] for name, array in answers.items()}
        self._company[form] = feeds, answers
        if len(self._company) > MOST_FORMS:
            self._company.popitem(last=False)


def _rows_for(sample: Sample) -> int:
    """How many rows may run together: the next job waits for them, and is not to miss its deadline for it.

    Such as take no longer than the job itself did, or a moment; two at least, as one has no company.
    """
    row_s = sample.run_s / sample.rows
    return max(2, sample.rows, int(QUICK_S / row_s) if row_s else MOST_ROWS)


def _after(first: Array, second: Array) -> Array:
    return np.concatenate([first, second])


def _form(sample: Sample) -> object:
    """What rows must share to be joined."""
    feeds = tuple([(name, array.dtype.name, array.shape[1:]) for name, array in sorted(sample.feeds.items())])
    return sample.model, sample.signature, sample.outputs, feeds


def _is_distinct(feeds: Mapping[str, Array], rows: Array) -> bool:
    """Whether they are not all the same."""
    return any(not np.array_equal(array[rows[0]], array[row]) for array in feeds.values() for row in rows[1:])


def _compared(sample: Sample, differs: str, distinct: bool) -> RowsCompared:
    return RowsCompared(sample.model, sample.identity, sample.signature, sample.outputs, differs, distinct)

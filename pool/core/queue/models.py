"""What the core knows of each model: how it is to be scheduled, what its batches cost, what it has used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pool.core.fleet import Slot
from pool.core.policy import ModelPolicy
from pool.core.queue.costs import Cost
from pool.core.queue.independence import Independence
from pool.core.queue.keys import Key
from pool.core.queue.line import Line
from pool.core.queue.tally import Tally
from pool.core.remembered import Remembered
from pool.wire.session_runs import KEEPS_STATE
from pool.wire.signatures import ModelInfo

__all__ = ["Model"]

MOST_COSTS = 4096  # keys whose costs are remembered, and whose working size is
FIRST_PATIENCE_S = 10.0  # after memory ran out, so long at the smaller size before a larger one is tried
LONGEST_PATIENCE_S = 600.0

KeyName = tuple[str | None, tuple[str, ...] | None, bytes]


@dataclass(slots=True, eq=False)
class WorkingSize:
    """Rows that memory is thought to have room for. Raised when `patience_s` have passed since the last change.

    `fitted`: the most rows that have fitted since fewer did not; `failed`: the fewest that did not fit, since they last
    did.
    """

    rows: int
    changed: float
    failed: int
    fitted: int = 0
    patience_s: float = FIRST_PATIENCE_S


class Model:
    """`used_s` is the device time it has used, divided by its weight: the scale on which models share devices."""

    def __init__(self, name: str, policy: ModelPolicy, tally: Tally | None = None) -> None:
        """`tally`: of a model of this name that was there before."""
        self.name = name
        self.policy = policy
        self.epoch = 0  # raised when what was found out of a key, or of where its jobs go, may be otherwise now
        self._info: ModelInfo | None = None
        self.used_s = 0.0
        self.tally = tally or Tally()
        self.jobs = 0
        self.size_bytes = 0
        self.common = Line(self, None)
        """Where its jobs wait that may run anywhere."""
        self.lines: dict[tuple[str | None, int | None], Line] = {(None, None): self.common}
        self._costs: Remembered[Cost] = Remembered(MOST_COSTS)
        self._sizes: Remembered[WorkingSize] = Remembered(MOST_COSTS)
        self.is_sized = False  # memory had no room for a batch of some key once
        self.independence = Independence(policy.batching)
        self.affinity: tuple[Slot, int | None] | None = None  # and its incarnation, once it has one; see `Affinity`
        self.leaving = False  # no slot is to have it any more
        self.written: tuple[Slot, int] | None = None  # where a session wrote last

    @property
    def stateful(self) -> bool:
        """Whether a run may change what later ones give; False too as long as no worker has told."""
        return self._info is not None and self._info.stateful

    @property
    def takes_microbatches(self) -> bool:
        """Whether a worker may be given more rows at once than run together; a handler's are all its own."""
        return self._info is not None and not self._info.handler

    def keeps_state(self, signature: str | None, told: ModelInfo | None = None) -> bool:
        """Whether a job of this signature that may have started must not run again.

        `told`: by the worker that ran it, if it is known; another may have loaded other files of the model since.
        """
        return self.stateful or (told is not None and told.stateful) or signature in KEEPS_STATE

    @property
    def queued(self) -> int:
        return sum(line.queued for line in self.lines.values())

    def _waits_since(self) -> float | None:
        """When the job came that waits longest of those of which nothing runs, if any does."""
        return min((since for line in self.lines.values() if (since := line.waits_since()) is not None), default=None)

    def adopt(self, policy: ModelPolicy) -> None:
        """From now on it is scheduled so."""
        self.policy = policy
        self.independence.batching = policy.batching
        self.judged_anew()

    def loaded(self, info: ModelInfo) -> None:
        """A worker has told what the model takes and gives."""
        if info != self._info:
            self._info = info
            self.judged_anew()

    def serve(self, identities: frozenset[str]) -> None:
        """The workers that serve it have these files. With none, what is known stays as it is."""
        if identities and identities != self.independence.serving:
            self.independence.serving = identities
            self.judged_anew()

    def line(self, device: str | None, version: int | None = None) -> Line:
        """Where its jobs for this device and version wait."""
        line = self.lines.get((device, version))
        if line is None:
            line = self.lines[(device, version)] = Line(self, device, version)
        return line

    def lines_of(self, device: str) -> list[Line]:
        """Those of jobs that are pinned to this very name."""
        return [line for line in self.lines.values() if line.device == device]

    def lines_of_versions(self) -> list[Line]:
        """Those of jobs that want one version."""
        return [line for line in self.lines.values() if line.version is not None]

    def cost(self, name: KeyName) -> Cost:
        """What is remembered of a key, or a new one."""
        return self._costs.get(name) or Cost()

    def remember(self, key: Key) -> None:
        """Something was learned of the key's cost. What was learned longest ago is forgotten first, or nearly so."""
        self._costs.put(_name(key), key.cost)

    def charge(self, seconds: float) -> None:
        """It has used so much device time; a negative charge corrects an earlier one."""
        self.tally.device_s += seconds
        self.used_s += seconds / self.policy.weight

    # --- how many rows run together -----------------------------------------------------------------------------

    def signature_name(self, asked: str | None) -> str | None:
        """The name under which its jobs are batched: the default signature's too, once a worker has told it."""
        return asked if self._info is None else self._info.signature_name(asked)

    def batchable(self, signature: str | None, outputs: tuple[str, ...] | None) -> bool:
        """Whether jobs for these outputs may be joined, cut and padded, as far as it is known by now."""
        info, name = self._info, self.signature_name(signature)
        return (
            info is not None
            and name is not None
            and info.has_rows(name, outputs)
            and self.independence.joins(name, info.signatures[name].asked(outputs))
        )

    def judged_anew(self) -> None:
        """Something was found out about the rows of a signature."""
        self.epoch += 1

    def run_alone(self, signature: str | None, why: str) -> bool:
        """From now on, as a run of it gave other rows than it was fed; False if it does already."""
        name = self.signature_name(signature) or ""
        self.judged_anew()
        return self.independence.misshapen(name, why)

    def answered_joined(self, signature: str | None, jobs: int) -> None:
        """So many jobs had their answers, of joined, cut or padded rows."""
        self.independence.answered(self.signature_name(signature) or "", jobs)

    def refuted(self, signature: str | None) -> str:
        """Why answers of joined rows of this signature are not to be trusted, or ""."""
        return self.independence.refuted(self.signature_name(signature) or "")

    def most_rows(self, key: Key) -> int:
        """How many rows of this key may run together."""
        most = self.policy.max_batch
        size = self._sizes.get(_name(key)) if self.is_sized else None
        if size is None or size.rows >= most:
            return most
        # A size that is padded up to one that did not fit would not fit either.
        return max((allowed for allowed in self.policy.allowed_batch_sizes if allowed <= size.rows), default=size.rows)

    def padded(self, key: Key, rows: int) -> int:
        padded = self.policy.padded(rows)
        return padded if padded == rows or padded <= self.most_rows(key) else rows

    def ran_out(self, key: Key, rows: int, now: float) -> int | None:
        """Memory had no room for so many rows: how many are to be tried from now on, if that is news.

        Half as many, or what has fitted before. Waits longer with the next larger size each time that one fails again.
        """
        name = _name(key)
        size = self._sizes.get(name)
        if size is None:
            self.epoch += 1
            self.is_sized = True
            size = WorkingSize(max(1, rows // 2), now, failed=rows)
            self._sizes.put(name, size)
            return size.rows
        if rows > size.rows or size.rows == 1:
            return None  # it began when more were thought to fit
        if rows >= size.failed:
            size.patience_s = min(LONGEST_PATIENCE_S, 2 * size.patience_s)
        if size.fitted >= rows:
            size.fitted = 0
        self.epoch += 1
        size.rows, size.changed, size.failed = max(1, size.fitted, rows // 2), now, rows
        return size.rows

    def fitted(self, key: Key, rows: int, now: float) -> None:
        """Memory had room for so many rows: after a while at the working size, a somewhat larger one is tried."""
        name = _name(key)
        size = self._sizes.get(name)
        if size is None:
            return
        size.fitted = max(size.fitted, rows)
        if rows >= size.failed:  # there is more room than there was
            size.failed, size.patience_s = rows + 1, FIRST_PATIENCE_S
        most = self.most_rows(key)
        if rows < most < self.policy.max_batch or now < size.changed + size.patience_s:
            return
        # Padded as they are, sizes between two allowed ones change nothing.
        allowed = min((allowed for allowed in self.policy.allowed_batch_sizes if allowed > most), default=0)
        size.rows = min(self.policy.max_batch, max(allowed, size.rows + max(1, size.rows // 4)))
        size.changed = now
        self.epoch += 1

    def sizes(self) -> Iterator[tuple[str | None, int]]:
        """The signatures whose batches are smaller than they might be, for want of memory."""
        for (signature, _, _), size in self._sizes.items():
            if size.rows < self.policy.max_batch:
                yield signature, size.rows

    def _dependent(self) -> dict[str, str]:
        """The signatures whose jobs run one by one for what was found out, and what that is."""
        names = () if self._info is None else self._info.signatures
        return {name: why for name in names if (why := self.independence.refuted(name))}

    def rows_told(self, signature: str) -> str:
        """For people: whether jobs for all outputs of the signature run together, and why."""
        assert self._info is not None
        if self._info.signatures[signature].composite:
            return "job by job: it has ragged or sparse tensors"
        if not self._info.has_rows(signature, None):
            return (
                "job by job: it keeps state"
                if self.stateful
                else ("job by job: some of its inputs or outputs have no rows")
            )
        return self.independence.told(signature, self._info.signatures[signature].asked(None))

    def snapshot(self, now: float) -> dict[str, Any]:
        """For people."""
        return {
            "name": self.name,
            "queued_jobs": self.queued,
            "queued_rows": sum(line.queued_rows() for line in self.lines.values()),
            "unanswered_jobs": self.jobs,
            "oldest_s": None if (since := self._waits_since()) is None else now - since,
            "leaving": self.leaving,
            "affinity": None if self.affinity is None else self.affinity[0].number,
            "bytes": self.size_bytes,
            "answered": self.tally.answered(),
            "last_minute": self.tally.last_minute(now),
            "device_s": self.tally.device_s,
            "max_batch": self.policy.max_batch,
            "working_sizes": [{"signature": signature, "rows": rows} for signature, rows in self.sizes()],
            "dependent": self._dependent(),
            "amiss": {} if self._info is None else dict(self._info.amiss),
            "costs": [
                {
                    "signature": signature,
                    "sizes": [
                        {"rows": rows, "batches": count, "median_s": median, "slowest_s": slowest}
                        for rows, (count, median, slowest) in cost.table().items()
                    ],
                }
                for (signature, _, _), cost in list(self._costs.items())[-8:]
            ],
        }


def _name(key: Key) -> KeyName:
    return (key.signature, key.outputs, key.form)

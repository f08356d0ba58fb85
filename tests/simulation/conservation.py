"""Nothing is idle while work waits: looked for after each event, from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pool.core.policy import Policy, SlotPlan
from simulation.records import Line, Record, Seat

__all__ = ["Conservation"]

GRACE_S = 1e-9


class Conservation:
    """The jobs that wait, and the lanes that could run them.

    Three reasons may keep a lane idle: `batch_wait`, one slot a line that is kept until it runs nothing else, for the
    jobs of the line that have lost a worker, and a model that writes state, whose jobs keep to one slot.
    """

    def __init__(self, policy: Policy, plans: Sequence[SlotPlan]) -> None:
        self._policy = policy
        self._loosest: dict[str, tuple[float, int]] = {}  # of all policies: the longest wait, the largest batch
        self._plans = plans
        self._waiting: dict[Line, dict[int, Record]] = {}
        self._suspects: dict[Line, dict[int, Record]] = {}

    def adopt(self, policy: Policy) -> None:
        """What gathers goes on as it began."""
        for model in {*self._policy.models, *policy.models}:
            longest_s, largest = self._bounds(model)
            other = policy.model(model)
            self._loosest[model] = (max(longest_s, other.batch_wait_s), max(largest, other.max_batch))
        self._policy = policy

    def _bounds(self, model: str) -> tuple[float, int]:
        policy = self._policy.model(model)
        return self._loosest.get(model) or (policy.batch_wait_s, policy.max_batch)

    def note(self, record: Record) -> None:
        """Something about the job is another."""
        suspects = record.waiting_suspects()
        for table, waits in ((self._suspects, suspects > 0), (self._waiting, record.waiting_rows() > suspects)):
            jobs = table.get(record.line)
            if waits:
                table.setdefault(record.line, {})[record.serial] = record
            elif jobs is not None and jobs.pop(record.serial, None) is not None and not jobs:
                del table[record.line]

    def forget(self, record: Record) -> None:
        """It waits in another line from now on."""
        for table in (self._suspects, self._waiting):
            jobs = table.get(record.line)
            if jobs is not None and jobs.pop(record.serial, None) is not None and not jobs:
                del table[record.line]

    @property
    def keeps_slots(self) -> bool:
        """Whether jobs that have lost a worker wait, for which slots may be kept."""
        return bool(self._suspects)

    def check(
        self,
        ready: Sequence[Seat],
        may_join: Callable[[Record], bool],
        suits: Callable[[Record, Seat], bool],
        at_home: Callable[[Line, Seat], bool],
        now: float,
    ) -> None:
        """`at_home`: whether the line's jobs may run there, as far as what they write is concerned."""
        if not self._waiting and not self._suspects:
            return
        free = [seat for seat in ready if seat.free > 0]
        idlers = {}
        for line, jobs in self._waiting.items():
            if free and self._any_ripe(line[0], jobs, may_join, now):
                able = [seat for seat in free if self.holds(seat, line) and not seat.exclusive]
                idlers.update({seat: line for seat in able if at_home(line, seat)})
        kept = [seat for seat in idlers if seat.runs and any(self.holds(seat, line) for line in self._suspects)]
        assert len(kept) == len(idlers), f"slots idle while work of a line waits: {idlers}"
        assert len(kept) <= len(self._suspects), f"more slots are kept idle than are needed: {kept}, {self._suspects}"
        for line in self._suspects:
            self._check_suspects(line, ready, suits)

    def _any_ripe(self, model: str, jobs: dict[int, Record], may_join: Callable[[Record], bool], now: float) -> bool:
        """Whether a job waits that waits for no company."""
        longest_s, largest = self._bounds(model)
        if not longest_s:
            return True
        rows: dict[object, int] = {}
        for record in jobs.values():
            alone = not may_join(record) and model not in self._loosest  # else it may gather as it began
            if alone or now > record.arrived + longest_s + GRACE_S or record.leases:
                return True
            key = (record.signature, record.outputs, record.form)
            rows[key] = rows.get(key, 0) + (record.rows or 1)
        return max(rows.values()) >= largest

    def holds(self, seat: Seat, line: Line) -> bool:
        model, device, version = line
        plan = self._plans[seat.slot]
        if version is not None and seat.versions.get(model) != version:
            return False
        return model in plan.models and (device is None or device in plan.names)

    def _check_suspects(self, line: Line, ready: Sequence[Seat], suits: Callable[[Record, Seat], bool]) -> None:
        """The jobs of a line that have lost a worker are run one after another, as soon as a slot runs nothing else."""
        holders = [seat for seat in ready if self.holds(seat, line)]
        if any(run.suspect and run.leases[0].record.line == line for seat in holders for run in seat.runs.values()):
            return
        waiting = self._suspects[line].values()
        idle = [seat for seat in holders if not seat.runs and any(suits(record, seat) for record in waiting)]
        assert not idle, f"slots run nothing, while suspects of {line} wait: {idle}"

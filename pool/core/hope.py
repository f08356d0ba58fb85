"""Whether any slot may still run the jobs of a line. A job that nobody will ever run is answered at once."""

from __future__ import annotations

from collections.abc import Iterator

from pool.core.actions import JobFailed
from pool.core.dispatch import Dispatch
from pool.core.line import Line
from pool.core.models import Model
from pool.core.supervision import Supervision
from pool.wire.faults import Fault

__all__ = ["Hope"]


class Hope:
    """Looks at slots only while some of them are out of service for good."""

    def __init__(self, supervision: Supervision, dispatch: Dispatch, models: dict[str, Model]) -> None:
        self._supervision = supervision
        self._dispatch = dispatch
        self._models = models

    def has(self, line: Line) -> bool:
        if not self._supervision.down:
            return True
        return any(slot.lasts for slot in self._dispatch.holders(line))

    def lost(self, line: Line) -> JobFailed:
        """What the jobs of a line without hope are told."""
        holders = self._dispatch.holders(line)
        why = "; ".join(f"slot {slot.number} is {slot.state.name}: {slot.reason}" for slot in holders)
        on = "" if line.device is None else f" on device {line.device!r}"
        text = f"no worker is left for model {line.model.name!r}{on}: {why}"
        if self._supervision.stopping:
            return JobFailed(Fault.POOL_STOPPING, f"the pool is stopping, and {text}")
        return JobFailed(Fault.WORKER_LOST, text)

    def lost_lines(self) -> Iterator[Line]:
        """The lines that no slot will serve any more, though jobs may wait there."""
        if not self._supervision.down:
            return
        for model in self._models.values():
            if model.jobs:
                yield from [line for line in model.lines.values() if not self.has(line)]

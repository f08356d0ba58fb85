"""Whether any slot may still run the jobs of a line. A job that nobody will ever run is answered at once."""

from __future__ import annotations

from collections.abc import Iterator

from pool.core.actions import JobFailed
from pool.core.dispatch import Dispatch
from pool.core.fleet import Fleet
from pool.core.queue import Line, Model, gone
from pool.core.versions import unserved
from pool.wire.faults import Fault

__all__ = ["Prospects"]


class Prospects:
    """Looks at slots only for jobs that may not run in each of them, and while some are out of service for good."""

    def __init__(self, fleet: Fleet, dispatch: Dispatch, models: dict[str, Model]) -> None:
        self._fleet = fleet
        self._dispatch = dispatch
        self._models = models

    def has(self, line: Line) -> bool:
        if not (self._fleet.down or line.pinned or line.model.leaving):
            return True
        if any(slot.lasts for slot in self._dispatch.holders(line)):
            return True
        if line.model.name in self._fleet.awaited and not line.pinned and not self._fleet.stopping:
            return True
        # Workers that are to have the model are on their way.
        return line.version is None and any(
            slot.lasts and line.model.name in slot.planned and line.suits(slot) for slot in self._fleet.slots
        )

    def lost(self, line: Line) -> JobFailed:
        """What the jobs of a line that no slot will ever run are told."""
        holders = self._dispatch.holders(line)
        name, policy = line.model.name, self._fleet.policy
        if (name in policy.unloadable or (not holders and line.model.leaving)) and not self._fleet.stopping:
            return gone(name, policy)
        if not holders and line.version is not None and not self._fleet.stopping:
            return self.unserved(line.model.name, line.device, line.version)
        why = "; ".join(f"slot {slot.number} is {slot.state.name}: {slot.reason}" for slot in holders)
        of = "" if line.version is None else f", version {line.version}"
        on = "" if line.device is None else f" on device {line.device!r}"
        text = f"no worker is left for model {line.model.name!r}{of}{on}: {why}"
        if self._fleet.stopping:
            return JobFailed(Fault.POOL_STOPPING, f"the pool is stopping, and {text}")
        return JobFailed(Fault.WORKER_LOST, text)

    def lost_lines(self) -> Iterator[Line]:
        """The lines that no slot will serve any more, though jobs may wait there."""
        for model in self._models.values():
            if model.jobs and (self._fleet.down or len(model.lines) > 1 or model.leaving):
                yield from [line for line in model.lines.values() if not self.has(line)]

    def versions(self, model: str, device: str | None) -> set[int]:
        """Those that slots have, though the worker there may not be READY yet, or any more."""
        slots = [slot for slot in self._fleet.slots if device is None or device in slot.names]
        return {slot.versions[model] for slot in slots if model in slot.versions}

    def unserved(self, model: str, device: str | None, version: int | str) -> JobFailed:
        """What a job is told that wants a version which is not there, or names one by a label: there are none."""
        if not (served := self.versions(model, device)):
            text = f"model {model!r} is not served from a folder of numbered versions: leave `version` out"
        else:
            where = "" if device is None else f" on device {device!r}"
            there = ", ".join(map(str, sorted(served)))
            text = f"model {model!r}: {unserved(version)}{where}; served: {there}"
        return JobFailed(Fault.MODEL_NOT_FOUND, text)

"""What the names of a job come to: its model, the line in which it waits, and with whom it may run.

It is found out once a call and not once a job, and counts as long as nothing has changed that it hangs on: what is
known of the slots and of the policy (`epoch`), what is known of the model (`model_epoch`), and that the
line has not forgotten its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pool.core.actions import JobFailed
from pool.core.jobs import Kept
from pool.core.queue.admission import unknown
from pool.core.remembered import MOST_NAME_BYTES
from pool.wire.entries import entry_name
from pool.wire.faults import Fault

if TYPE_CHECKING:
    from pool.core.fleet import Fleet
    from pool.core.prospects import Prospects
    from pool.core.queue.affinity import Affinity
    from pool.core.queue.backlog import Backlog
    from pool.core.queue.keys import Key
    from pool.core.queue.line import Line
    from pool.core.queue.models import Model

__all__ = ["Call", "Calls", "Names"]

MOST_CALLS = 1024  # more than callers have at a time; the next one begins anew, as it costs a job or two

Names: TypeAlias = tuple[str, "int | str | None", "str | None", "tuple[str, ...] | None", "str | None", bytes]
"""Model, version, signature, outputs, device and form, as the client named them."""


class Call:
    """What the names came to.

    `kept`: why the pool keeps its jobs to one slot, and `named`: the device that its client named. `served`: whether
    some slot may run it.
    """

    __slots__ = ("epoch", "kept", "key", "line", "model", "model_epoch", "named", "served")

    def __init__(
        self,
        epoch: int,
        model: Model,
        line: Line,
        key: Key,
        kept: Kept | None,
        named: str | None,
        served: bool,
    ) -> None:
        self.epoch, self.model_epoch = epoch, model.epoch
        self.model, self.line, self.key = model, line, key
        self.kept, self.named, self.served = kept, named, served


class Calls:
    """Those of late, bounded in number and in the bytes of their names."""

    def __init__(
        self, backlog: Backlog, fleet: Fleet, affinity: Affinity, prospects: Prospects, pins: frozenset[str]
    ) -> None:
        """`pins`: the names by which jobs may be pinned to a slot."""
        self.known: dict[Names, Call] = {}
        self.epoch = 0  # raised when what is known of slots or of the policy may be otherwise now
        self._names_bytes = 0
        self._backlog = backlog
        self._fleet = fleet
        self._affinity = affinity
        self._prospects = prospects
        self._pins = pins

    def model(self, name: str, version: int | str | None) -> Model | JobFailed:
        """The model that a job gets, or the version of it that it asks for, which is a model by itself."""
        if (versions := self._fleet.policy.versions.get(name)) is not None:
            number = self.default_version(name) if version is None else versions.number(version)
            if number is None:
                assert version is not None
                return JobFailed(Fault.MODEL_NOT_FOUND, versions.unserved(name, version))
            name = entry_name(name, number)
        return self._backlog.models.get(name) or unknown(name, self._backlog)

    def default_version(self, name: str) -> int:
        """Of a model of which several are served, the one that a job gets which names none: the newest that can run."""
        numbers, models = self._fleet.policy.versions[name].numbers, self._backlog.models
        for number in reversed(numbers):
            model = models.get(entry_name(name, number))
            if model is not None and not model.leaving and self._prospects.has(model.line(None)):
                return number
        return numbers[-1]

    def resolve(self, model: Model, names: Names) -> Call | JobFailed:
        """What the names come to now; why they come to nothing."""
        name, version, signature, outputs, named, form = names
        if name in self._fleet.policy.versions:
            version = None  # it is in the model's name
        if (failed := self._unknown_device(model.name, named)) is not None:
            return failed
        if version is not None and version not in self._prospects.versions(model.name, named):
            return self._prospects.unserved(model.name, named, version)
        affinity = self._affinity
        device = affinity.within(model, named) if named else affinity.device(model, signature)
        wanted = version if isinstance(version, int) else None
        line = model.line(device, wanted)
        if device != named and not self._prospects.has(line):
            # Where it would be kept to, there is another version by now, or another model.
            line = model.line(named, wanted)
        key = line.key(model.signature_name(signature), outputs, form)
        if key.epoch != model.epoch:
            key.renew()
        kept = Kept.AFFINITY if line.device is not None and not named else None
        call = Call(self.epoch, model, line, key, kept, named, self._prospects.has(line))
        self._names_bytes += key.names_bytes
        if len(self.known) >= MOST_CALLS or self._names_bytes > MOST_NAME_BYTES:
            self.known.clear()
            self._names_bytes = key.names_bytes
        self.known[names] = call
        return call

    def _unknown_device(self, model: str, device: str | None) -> JobFailed | None:
        if device is None:
            return None
        holders = [slot for slot in self._fleet.slots if model in (*slot.models, *slot.planned)]
        if any(device in slot.names for slot in holders):
            return None
        there = ", ".join(dict.fromkeys(slot.device or f"slot:{slot.number}" for slot in holders))
        why = f"does not hold model {model}" if device in self._pins else "is not a device of this pool"
        return JobFailed(Fault.INVALID_INPUT, f"device {device!r:.80} {why}; the model is on: {there}")

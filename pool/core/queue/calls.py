"""What the names of a job come to: its model, the line in which it waits, and with whom it may run.

It is found out once a call and not once a job, and counts as long as nothing has changed that it hangs on: what is
known of the slots and of the policy (`epoch`), what is known of the model (`model_epoch`), and that the
line has not forgotten its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pool.core.actions import JobFailed
from pool.core.queue.admission import unknown
from pool.core.remembered import MOST_NAME_BYTES
from pool.wire.entries import entry_name
from pool.wire.faults import Fault

if TYPE_CHECKING:
    from pool.core.fleet import Fleet
    from pool.core.hope import Hope
    from pool.core.queue.backlog import Backlog
    from pool.core.queue.homes import Homes
    from pool.core.queue.keys import Key
    from pool.core.queue.line import Line
    from pool.core.queue.models import Model

__all__ = ["Call", "Calls", "Names"]

MOST_CALLS = 1024  # more than callers have at a time; the next one begins anew, as it costs a job or two

Names: TypeAlias = tuple[str, "int | str | None", "str | None", "tuple[str, ...] | None", "str | None", bytes]
"""Model, version, signature, outputs, device and form, as the client named them."""


class Call:
    """What the names came to.

    `home`: the slot to which its jobs are kept, as the model's variables are written there. `asked`: the device that
    its client named, where a home on it was chosen among several slots. `free`: it may run on any device. `hope`:
    whether some slot may run it.
    """

    __slots__ = ("asked", "epoch", "free", "home", "hope", "key", "line", "model", "model_epoch", "version")

    def __init__(
        self,
        epoch: int,
        model: Model,
        line: Line,
        key: Key,
        version: int | None,
        home: str | None,
        asked: str | None,
        free: bool,
        hope: bool,
    ) -> None:
        self.epoch, self.model_epoch = epoch, model.epoch
        self.model, self.line, self.key = model, line, key
        self.version, self.home, self.asked, self.free, self.hope = version, home, asked, free, hope


class Calls:
    """Those of late, bounded in number and in the bytes of their names."""

    def __init__(self, backlog: Backlog, fleet: Fleet, homes: Homes, hope: Hope, pins: frozenset[str]) -> None:
        """`pins`: the names by which jobs may be pinned to a slot."""
        self.known: dict[Names, Call] = {}
        self.epoch = 0  # raised when what is known of slots or of the policy may be otherwise now
        self._names_bytes = 0
        self._backlog = backlog
        self._fleet = fleet
        self._homes = homes
        self._hope = hope
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
            if model is not None and not model.leaving and self._hope.has(model.line(None)):
                return number
        return numbers[-1]

    def resolve(self, model: Model, names: Names) -> Call | JobFailed:
        """What the names come to now; why they come to nothing."""
        name, version, signature, outputs, asked, form = names
        if name in self._fleet.policy.versions:
            version = None  # it is in the model's name
        if (failed := self._unknown_device(model.name, asked)) is not None:
            return failed
        if version is not None and version not in self._hope.versions(model.name, asked):
            return self._hope.unserved(model.name, asked, version)
        homes = self._homes
        home = None if asked else homes.device(model, signature)
        device = homes.within(model, asked) if asked else home
        wanted = version if isinstance(version, int) else None
        line = model.line(device, wanted)
        if device != asked and not self._hope.has(line):
            # Where it would be kept to, there is another version by now, or another model.
            device, home, line = asked, None, model.line(asked, wanted)
        key = line.key(model.signature_name(signature), outputs, form)
        if key.epoch != model.epoch:
            key.renew()
        moved = asked if asked is not None and device != asked else None
        call = Call(self.epoch, model, line, key, wanted, home, moved, device is None, self._hope.has(line))
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
        why = f"does not hold model {model}" if device in self._pins else "is no device of this pool"
        return JobFailed(Fault.INVALID_INPUT, f"device {device!r:.80} {why}; the model is on: {there}")

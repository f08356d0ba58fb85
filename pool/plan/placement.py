"""Which models each slot serves: a pure function of demands and devices, the same answer every time.

Models that say where come first; the others follow by decreasing size, each onto the devices with the least bytes
placed so far, of these the largest and fastest, and onto a CPU only where no GPU has room. Where spreading leaves a
model without room, packing as tightly as possible is tried, and then every way there is (`pack`, within a bound) before
the configuration is refused. In a pool that serves, models stay where they are, as long as all fit so. What others
hold of a device when the pool looks is not free; it has no say in which devices come first, or a few bytes would move
models.

These are the copies that there have to be. `pool.plan.copies` fills what is empty then.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal

from pool.devices import Device
from pool.errors import InvalidConfig
from pool.wire.sizes import readable

__all__ = ["DevicesOccupied", "ModelDemand", "pack", "place", "ranks", "shown"]

STEPS = 20_000  # of `pack`, some tenths of a second

_Way = Literal["stay", "spread", "tight", "search"]
_There = Mapping[str, Collection[int]]


class DevicesOccupied(InvalidConfig):
    """The models would fit, were it not for what others hold of the devices now: a later start may succeed."""


@dataclass(frozen=True, slots=True)
class ModelDemand:
    """`devices`: slot numbers (see `pool.devices.pinned_slots`), "all", or "auto": any `replicas` of them.

    `replicas` None: one, and further ones where devices would be empty, in proportion to `weight`.
    `memory_bytes` is None where nobody knows: such a model fits everywhere. `source`: who says so, for people.
    """

    name: str
    devices: Literal["auto", "all"] | tuple[int, ...]
    replicas: int | None
    memory_bytes: int | None
    source: str = ""
    weight: float = field(default=1.0, compare=False)

    @property
    def required(self) -> int:
        """How many copies of an "auto" there have to be."""
        return 1 if self.replicas is None else self.replicas


def place(
    models: Sequence[ModelDemand],
    devices: Sequence[Device],
    there: _There | None = None,
    lost: Collection[int] = (),
) -> tuple[tuple[str, ...], ...]:
    """The names of the models of each slot, in the order of `models`.

    `there`: the slots of each model that is served already. Where it can, an "auto" stays on as many of them as it may.
    Slots that are `lost` come last.

    Guarantees: a pinned model is on its slots and no others, "all" is on every slot, "auto" on `required`
    different ones; no device is given more bytes than it has free, as far as both are known.
    REQUIRES unique names and slot numbers that exist.
    Raises `InvalidConfig` with a line for each model and device if something does not fit, `DevicesOccupied` if it
    would on devices that nobody else uses.
    """
    plan = _found(models, devices, there or {}, lost)
    if plan is not None:
        return plan.names()
    empty = [replace(device, used_bytes=0) for device in devices]
    kind = InvalidConfig if _found(models, empty, {}, ()) is None else DevicesOccupied
    raise kind(_Plan(models, devices, "spread").explanation())


def ranks(devices: Sequence[Device]) -> list[int]:
    """Of each slot its rank: GPUs come first, of these the one with the most memory, then the fastest."""
    order = sorted(devices, key=lambda device: (device.kind == "cpu", -(device.memory_bytes or 0), -device.speed))
    return [order.index(device) for device in devices]


def _found(
    models: Sequence[ModelDemand], devices: Sequence[Device], there: _There, lost: Collection[int]
) -> "_Plan | None":
    ways: tuple[_Way, ...] = ("stay", "spread", "tight", "search")
    plans = (_Plan(models, devices, way, there, lost) for way in ways if there or way != "stay")
    return next((plan for plan in plans if plan.fits()), None)


class _Plan:
    """One attempt at placing: "spread" prefers the device with the least bytes of ours, "tight" the fullest.

    "stay" prefers those where the model is, and places the models first that are anywhere.
    """

    def __init__(
        self,
        models: Sequence[ModelDemand],
        devices: Sequence[Device],
        way: _Way,
        there: _There | None = None,
        lost: Collection[int] = (),
    ) -> None:
        self._models = models
        self._devices = devices
        self._ranks = ranks(devices)
        self._way = way
        self._lost = lost
        self._there = there or {} if way == "stay" else {}
        self._placed = [0] * len(devices)
        self._slots: dict[str, tuple[int, ...]] = {}
        self._refused: dict[str, str] = {}
        for model in models:
            if model.devices != "auto":
                self._pin(model)
        auto = [model for model in models if model.devices == "auto"]
        auto.sort(key=lambda model: (model.name not in self._there, -(model.memory_bytes or 0)))
        if way == "search":
            self._search(auto)
        for model in auto:
            if model.name not in self._slots:
                self._choose(model)

    def fits(self) -> bool:
        return not self._refused

    def names(self) -> tuple[tuple[str, ...], ...]:
        return tuple(
            tuple(model.name for model in self._models if slot in self._slots[model.name])
            for slot in range(len(self._devices))
        )

    def explanation(self) -> str:
        width = max(len(name) for name in ["model", *(model.name for model in self._models)])
        sources = max((len(model.source) for model in self._models), default=0)
        source = f"  {'as in':<{max(sources, 5)}}" if sources else ""
        lines = ["the models do not fit the devices:", f"  {'model':<{width}}  {'needs':>10}{source}  device"]
        for model in self._models:
            where = self._refused.get(model.name) or ", ".join(
                self._devices[slot].label for slot in self._slots[model.name]
            )
            source = f"  {model.source:<{max(sources, 5)}}" if sources else ""
            lines.append(f"  {model.name:<{width}}  {shown(model.memory_bytes):>10}{source}  {where}")
        width = max(len(name) for name in ["device", *(device.label for device in self._devices)])
        lines.append(f"  {'device':<{width}}  {'has':>10}  {'others use':>10}  {'free':>10}")
        for slot, device in enumerate(self._devices):
            has, used, left = map(shown, (device.memory_bytes, device.used_bytes, self._left(slot)))
            lines.append(f"  {device.label:<{width}}  {has:>10}  {used:>10}  {left:>10}")
        return "\n".join(lines)

    def _left(self, slot: int) -> int | None:
        free = self._devices[slot].free_bytes
        return None if free is None else free - self._placed[slot]

    def _has_room(self, slot: int, model: ModelDemand) -> bool:
        left = self._left(slot)
        return left is None or model.memory_bytes is None or model.memory_bytes <= left

    def _pin(self, model: ModelDemand) -> None:
        slots = range(len(self._devices)) if isinstance(model.devices, str) else model.devices
        full = [self._devices[slot].label for slot in slots if not self._has_room(slot, model)]
        if full:
            self._refused[model.name] = f"does not fit on {', '.join(full)}"
        else:
            self._put(model, slots)

    def _search(self, auto: Sequence[ModelDemand]) -> None:
        room = [self._left(slot) for slot in range(len(self._devices))]
        found = pack(room, [(model.memory_bytes or 0, model.required) for model in auto])
        for model, slots in zip(auto, found or (), strict=False):
            self._put(model, slots)

    def _choose(self, model: ModelDemand) -> None:
        if model.required > len(self._devices):
            self._refused[model.name] = f"devices needed: {model.required}, there are: {len(self._devices)}"
            return
        room = [slot for slot in range(len(self._devices)) if self._has_room(slot, model)]
        if len(room) < model.required:
            self._refused[model.name] = f"devices needed: {model.required}, with room: {len(room)}"
            return
        there = self._there.get(model.name, ())
        room.sort(key=lambda slot: (slot not in there, slot in self._lost, self._preference(slot)))
        self._put(model, room[: model.required])

    def _preference(self, slot: int) -> tuple[bool, float, int, int]:
        # Models of unknown size weigh nothing: their number breaks the tie, or all would meet on one slot.
        number = sum(slot in slots for slots in self._slots.values())
        weight: float = self._placed[slot]
        if self._way in ("tight", "search"):
            left = self._left(slot)
            weight = float("inf") if left is None else left
        return (self._devices[slot].kind == "cpu", weight, number, self._ranks[slot])

    def _put(self, model: ModelDemand, slots: Iterable[int]) -> None:
        self._slots[model.name] = tuple(sorted(slots))
        for slot in self._slots[model.name]:
            self._placed[slot] += model.memory_bytes or 0


def pack(
    room: Sequence[int | None], wanted: Sequence[tuple[int, int]], steps: int = STEPS
) -> list[tuple[int, ...]] | None:
    """For each `(size, copies)` the bins that have a copy, all different; None: there is no way, or none was found.

    `room`: of each bin, None for one without a bound. The largest are best named first. Bins with as much room left are
    alike, so a way that failed is not tried in another order: quick for the models and devices of one machine.
    """
    needed = [sum(size * copies for size, copies in wanted[number:]) for number in range(len(wanted))]
    in_vain: set[tuple[int, tuple[float, ...]]] = set()

    def fill(number: int, room: list[float]) -> list[tuple[int, ...]] | None:
        nonlocal steps
        if number == len(wanted):
            return []
        alike = (number, tuple(sorted(room)))
        if alike in in_vain or needed[number] > sum(room):
            return None
        size, copies = wanted[number]
        for bins in _ways(room, size, copies):
            steps -= 1
            if steps < 0:
                return None
            rest = fill(number + 1, [left - size * (bin_ in bins) for bin_, left in enumerate(room)])
            if rest is not None:
                return [bins, *rest]
        in_vain.add(alike)
        return None

    return fill(0, [float("inf") if each is None else each for each in room])


def _ways(room: Sequence[float], size: int, copies: int) -> Iterator[tuple[int, ...]]:
    """The fullest first; of bins that are alike one way alone."""
    tried = set()
    fitting = sorted((bin_ for bin_, left in enumerate(room) if left >= size), key=lambda bin_: (room[bin_], bin_))
    for bins in combinations(fitting, copies):
        rooms = tuple(room[each] for each in bins)
        if rooms not in tried:
            tried.add(rooms)
            yield bins


def shown(size_bytes: int | None) -> str:
    return "unknown" if size_bytes is None else readable(size_bytes)

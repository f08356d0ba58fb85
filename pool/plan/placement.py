"""Which models each slot serves: a pure function of what models want, the places, and where models are now.

Models stay where they are; if not all fit so, they are spread, the largest first. Where spreading leaves no room, other
ways are searched, within a bound. Further copies then fill the places without a model.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, product
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from pool.errors import InvalidConfig

if TYPE_CHECKING:
    from pool.devices import Device

ALL = -1
LOOKS = 60_000  # at places, before a search is given up: a tenth of a second
REMEDY = "a smaller device_memory where a model needs less, other devices, fewer replicas, or fewer models"

Plan = dict[int, list[str]]  # the models of each slot
Places = Mapping[int, "Device"]  # by slot, each with its own part of the memory; 0 bytes are no bound
There = Mapping[int, Collection[str]]


class Want(NamedTuple):
    """A model. `options`: TensorFlow's for a whole process, so models that demand different values share no slot."""

    name: str
    nbytes: int  # of a slot's memory; 0: unknown, it fits everywhere
    slots: tuple[int, ...]  # that its devices allow
    replicas: int | None  # None: "auto"; or `ALL` of its slots
    weight: float
    is_stateful: bool  # it has one copy
    options: Mapping[str, Any]
    source: str = ""  # who says what it needs

    def conflict(self, other: "Want") -> str:
        """Of which option they demand different values; "" of none."""
        for key, value in self.options.items():
            if other.options.get(key, value) != value:
                return f"{self.name} and {other.name} demand {key} {value} and {other.options[key]}"
        return ""


def place(wants: Sequence[Want], places: Places, there: There) -> Plan:
    """The models of every slot, in the order of `wants`. `there`: what each slot serves now.

    Raises `InvalidConfig` with a table of the models and one of the places where they do not fit.

    A model is on as many of its slots as `replicas` says, and no device has more than its memory. "auto": one copy, and
    each GPU without a model has one of that with the fewest for its weight; or one on each CPU, if it may be on no GPU.
    """
    if found := _found(wants, places, there):
        return found.filled(wants)
    raise InvalidConfig(_refusal(wants, places))


def place_most(wants: Sequence[Want], places: Places, there: There) -> tuple[Plan, dict[str, str]]:
    """As `place`, for a pool that has lost a device and must go on. Raises nothing.

    Where not all fit, one copy of each model has to be, and others come as they fit. Where that does not fit, models
    are left out: of the least weight, of these first what no slot serves, then the largest. The second value says why.
    """
    if whole := _found(wants, places, there):
        return whole.filled(wants), {}
    found, left_out = _Attempt([], places, there, is_still=False), {}
    served = {name for slot in places for name in there.get(slot, ())}
    for want in sorted(wants, key=lambda want: (-want.weight, want.name not in served, want.nbytes)):
        one = want._replace(replicas=None if want.replicas is None else 1)
        if more := _found([*found.order, one], places, there):
            found = more
        else:
            left_out[want.name] = f"it needs {size(want.nbytes)}, and none of its devices is there and has that left"
    found.needed = _Attempt(wants, places, there, is_still=False).needed
    return found.filled([want for want in wants if want.name not in left_out]), left_out


def size(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB" if nbytes else "–"


def _found(wants: Sequence[Want], places: Places, there: There) -> "_Attempt | None":
    attempts = (_Attempt(wants, places, there, is_still) for is_still in (True, False))
    return next((attempt for attempt in attempts if attempt.search(0)), None)


def _refusal(wants: Sequence[Want], places: Places) -> str:
    attempt = _Attempt(wants, places, {}, is_still=False)
    attempt.search(0)
    lines = [f"the models do not fit the devices: there is no room for {attempt.order[attempt.deepest].name}"]
    lines.append(f"  {'MODEL':<24} {'NEEDS':>10}  {'FROM':<13}  COPIES  OF SLOTS")
    for want in wants:
        copies, slots = attempt.needed[want.name], ", ".join(map(str, attempt.allowed[want.name])) or "none"
        lines.append(f"  {want.name:<24} {size(want.nbytes):>10}  {want.source:<13}  {copies:>6}  {slots}")
    lines.append(f"  {'DEVICE':<24} {'HAS':>10}  SLOT")
    lines += [f"  {each.label:<24} {size(each.memory_bytes):>10}  {slot}" for slot, each in places.items()]
    told = f"what would help: {REMEDY}"
    if _found([want._replace(options={}) for want in wants], places, {}):
        conflict = next(filter(None, (one.conflict(other) for one, other in combinations(wants, 2))))
        told = f"GPUOptions belong to the process: {conflict}, so each needs a slot of its own"
    return "\n".join([*lines, told])


class _Attempt:
    """`is_still`: models keep their places, and only those that are nowhere are placed."""

    def __init__(self, wants: Sequence[Want], places: Places, there: There, is_still: bool) -> None:
        self._places, self._there = places, there
        self._on: dict[int, dict[str, Want]] = {slot: {} for slot in places}
        self._free: dict[int, float] = {slot: each.memory_bytes or inf for slot, each in places.items()}
        self._looks, self.deepest = LOOKS, 0
        self.allowed: dict[str, list[int]] = {}
        self.needed: dict[str, int] = {}  # the copies that there have to be
        self._choices: dict[str, list[int]] = {}
        gpus = {slot for slot, each in places.items() if each.kind == "gpu"}
        for want in wants:
            slots = {*want.slots}
            slots = slots & gpus or slots if want.replicas is None else slots
            allowed = self.allowed[want.name] = [slot for slot in places if slot in slots]
            copies = 1 if want.is_stateful or want.replicas is None else want.replicas
            copies = self.needed[want.name] = max(1, len(allowed)) if copies == ALL else copies
            here = [slot for slot in allowed if want.name in there.get(slot, ())]
            self._choices[want.name] = here if is_still and len(here) >= copies else allowed
        has_choice = {want.name: len(self._choices[want.name]) > self.needed[want.name] for want in wants}
        self.order = sorted(wants, key=lambda want: (has_choice[want.name], -want.nbytes))

    def search(self, number: int) -> bool:
        """Places the models from this number on, each on the places that it prefers, or else on others."""
        if number == len(self.order):
            return True
        self.deepest = max(self.deepest, number)
        want = self.order[number]
        for chosen in combinations(self._preferred(want), self.needed[want.name]):
            for slot in chosen:
                self._put(want, slot)
            if self.search(number + 1):
                return True
            for slot in chosen:
                del self._on[slot][want.name]
                self._free[slot] += want.nbytes
            self._looks -= len(self._places)
            if self._looks < 0:
                break
        return False

    def filled(self, wants: Sequence[Want]) -> Plan:
        """With what is still needed, and further copies: they stay where no model has come, or come."""
        copies = Counter(name for on in self._on.values() for name in on)
        order = sorted(self._places, key=lambda slot: (not self._there.get(slot), -self._free[slot]))
        for is_further, slot in product((False, True), order):
            on, now, device = self._on[slot], self._there.get(slot, ()), self._places[slot]
            for want in sorted(wants, key=lambda want: (want.name not in now, copies[want.name] / want.weight)):
                is_idle = (device.kind == "cpu" or not on) and want.replicas is None and not want.is_stateful
                is_due = is_idle if is_further else copies[want.name] < self.needed[want.name]
                if is_due and slot in self.allowed[want.name] and self._fits(want, slot):
                    self._put(want, slot)
                    copies[want.name] += 1
        return {slot: [want.name for want in wants if want.name in on] for slot, on in self._on.items()}

    def _preferred(self, want: Want) -> list[int]:
        """Those with room, of each device one first: where the model is, then where most is free."""

        def preference(slot: int) -> tuple[object, ...]:
            now, free = self._there.get(slot, ()), self._free[slot] if want.nbytes else 0
            return want.name not in now, self._places[slot].kind == "cpu", -free, len(self._on[slot]), len(now), slot

        best = sorted((slot for slot in self._choices[want.name] if self._fits(want, slot)), key=preference)
        labels = [self._places[slot].label for slot in best]
        turns = {slot: labels[:number].count(labels[number]) for number, slot in enumerate(best)}
        return sorted(best, key=lambda slot: turns[slot])

    def _fits(self, want: Want, slot: int) -> bool:
        on = self._on[slot]
        is_alone = not want.options or not any(map(want.conflict, on.values()))
        return is_alone and want.name not in on and want.nbytes <= self._free[slot]

    def _put(self, want: Want, slot: int) -> None:
        self._on[slot][want.name] = want
        self._free[slot] -= want.nbytes

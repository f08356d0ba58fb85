"""Which models each slot serves: a pure function of what models want, the places, and where models are now.

The copies that there have to be come first, the largest first. Models stay where they are. If not all fit so, they are
spread, and if that fails packed; each of these tries other ways where the best one fails. Further copies then fill the
places without a model.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import inf
from typing import Any

from pool.errors import InvalidConfig

ALL = -1
LOOKS = 200_000  # at places, before a search is given up: some tenths of a second
REMEDY = "a smaller device_memory where a model needs less, other devices, fewer replicas, or fewer models"

Plan = dict[int, list[str]]  # the models of each slot
There = Mapping[int, Collection[str]]


class DoesNotFit(InvalidConfig):
    """The message has a table of the models and one of the places."""


@dataclass(frozen=True)
class Want:
    """A model. `options`: TensorFlow's for a whole process, so models that demand different values share no slot."""

    name: str
    nbytes: int  # of a device's memory; 0: unknown, it fits everywhere
    slots: tuple[int, ...]  # that its devices allow
    replicas: int | None  # None: "auto"; or `ALL` of its slots
    weight: float
    is_stateful: bool  # it has one copy
    options: Mapping[str, Any]
    source: str = ""  # who says what it needs

    def conflict(self, other: "Want") -> str | None:
        """The option of which the other one demands another value."""
        theirs = other.options
        return next((key for key, value in self.options.items() if theirs.get(key, value) != value), None)


@dataclass(frozen=True)
class Place:
    """A slot. Those with the same label are of one device and share its memory."""

    slot: int
    label: str
    memory_bytes: int  # 0: unknown, without a bound
    is_cpu: bool


def place(wants: Sequence[Want], places: Sequence[Place], there: There) -> Plan:
    """The models of every slot, in the order of `wants`. `there`: what each slot serves now.

    A model is on as many of the slots that it allows as `replicas` says, and no device has more than its memory. With
    "auto" it has one copy on a GPU, and then each GPU without a model gets a copy of that with the fewest copies for
    its weight. Where it allows CPUs alone, it is on each of them.
    REQUIRES unique names and slots. Raises `DoesNotFit`.
    """
    if found := _found(wants, places, there):
        return found.filled(wants)
    raise DoesNotFit(_refusal(wants, places))


def place_most(wants: Sequence[Want], places: Sequence[Place], there: There) -> tuple[Plan, dict[str, str]]:
    """As `place`, for a pool that has lost a device and must go on. Raises nothing.

    Where not all fit, one copy of each model has to be, and others come as they fit. Where that does not fit, models
    are left out: of the least weight, of these first what no slot serves, then the largest. The second value says why.
    """
    with suppress(DoesNotFit):
        return place(wants, places, there), {}
    found, left_out = _Attempt([], places, there, False, False), {}
    served = {name for each in places for name in there.get(each.slot, ())}
    for want in sorted(wants, key=lambda want: (-want.weight, want.name not in served, want.nbytes)):
        one = replace(want, replicas=None if want.replicas is None else 1)
        if more := _found([*found.order, one], places, there):
            found = more
        else:
            left_out[want.name] = f"it needs {size(want.nbytes)}, and none of its devices is there and has that left"
    return found.filled([want for want in wants if want.name not in left_out]), left_out


def size(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB" if nbytes else "–"


def _found(wants: Sequence[Want], places: Sequence[Place], there: There) -> "_Attempt | None":
    ways = [(True, False), (True, True), (False, False), (False, True)]
    attempts = (_Attempt(wants, places, there, *way) for way in ways)
    return next((attempt for attempt in attempts if attempt.search(0)), None)


def _refusal(wants: Sequence[Want], places: Sequence[Place]) -> str:
    attempt = _Attempt(wants, places, {}, False, True)
    attempt.search(0)
    lines = [f"the models do not fit the devices: there is no room for {attempt.order[attempt.deepest].name}"]
    wide = max(len(want.name) for want in wants)
    for want in wants:
        slots = ", ".join(map(str, attempt.allowed[want.name])) or "none"
        needs = f"{size(want.nbytes):>10} ({want.source})"
        lines.append(f"  {want.name:<{wide}}  needs {needs}, {attempt.copies_of(want)} × of slots: {slots}")
    lines += [f"  slot {each.slot} has {size(each.memory_bytes):>10}, {each.label}" for each in places]
    if not _found([replace(want, options={}) for want in wants], places, {}):
        return "\n".join([*lines, f"what would help: {REMEDY}"])
    one, other, key = next((a, b, key) for a, b in combinations(wants, 2) if (key := a.conflict(b)))
    told = f"{one.name} and {other.name} demand {key} {one.options[key]} and {other.options[key]}"
    return "\n".join([*lines, f"GPUOptions belong to the process: {told}, so each needs a slot of its own"])


class _Attempt:
    """`is_still`: models keep their places, and only those that are nowhere are placed. `is_tight`: fullest first."""

    def __init__(self, wants: Sequence[Want], places: Sequence[Place], there: There, is_still: bool, is_tight: bool):
        self._places, self._there, self._is_tight = places, there, is_tight
        self._on: dict[int, dict[str, Want]] = {each.slot: {} for each in places}
        self._free: dict[str, float] = {each.label: each.memory_bytes or inf for each in places}
        self._copies: Counter[str] = Counter()
        self._looks, self.deepest = LOOKS, 0
        self.allowed: dict[str, dict[int, Place]] = {}
        self._choices: dict[str, list[Place]] = {}
        gpus = {each.slot for each in places if not each.is_cpu}
        for want in wants:
            slots = {*want.slots}
            slots = slots & gpus or slots if want.replicas is None else slots
            allowed = self.allowed[want.name] = {each.slot: each for each in places if each.slot in slots}
            here = [each for slot, each in allowed.items() if want.name in there.get(slot, ())]
            is_bound = is_still and len(here) >= self.copies_of(want)
            self._choices[want.name] = here if is_bound else [*allowed.values()]
        spare = {want.name: len(self._choices[want.name]) > self.copies_of(want) for want in wants}
        self.order = sorted(wants, key=lambda want: (spare[want.name], -want.nbytes))  # what has no choice comes first

    def copies_of(self, want: Want) -> int:
        """Those that there have to be."""
        if want.is_stateful or want.replicas is None:
            return 1
        return max(1, len(self.allowed[want.name])) if want.replicas == ALL else want.replicas

    def search(self, number: int) -> bool:
        """Places the models from this number on, each on the places that it prefers, or else on others."""
        if number == len(self.order):
            return True
        self.deepest = max(self.deepest, number)
        want = self.order[number]
        for chosen in combinations(self._preferred(want), copies := self.copies_of(want)):
            put = [each for each in chosen if self._put(want, each)]
            if len(put) == copies and self.search(number + 1):
                return True
            for each in put:
                del self._on[each.slot][want.name]
                self._free[each.label] += want.nbytes
                self._copies[want.name] -= 1
            self._looks -= len(self._places)
            if self._looks < 0:
                break
        return False

    def filled(self, wants: Sequence[Want]) -> Plan:
        """With what is due of `replicas`, and further copies: they stay where no model has come, or come."""
        order = sorted(self._places, key=lambda each: (not self._there.get(each.slot), -self._free[each.label]))
        for is_further, each in product((False, True), order):
            on, now = self._on[each.slot], self._there.get(each.slot, ())
            for want in sorted(wants, key=lambda want: (want.name not in now, self._copies[want.name] / want.weight)):
                is_due = self._copies[want.name] < self.copies_of(want)
                is_idle = (each.is_cpu or not on) and want.replicas is None and not want.is_stateful
                if (is_idle if is_further else is_due) and each.slot in self.allowed[want.name]:
                    self._put(want, each)
        return {slot: [want.name for want in wants if want.name in on] for slot, on in self._on.items()}

    def _preferred(self, want: Want) -> list[Place]:
        """Those with room, of each device one first: where the model is, then where most, or least, is free."""

        def preference(each: Place) -> tuple[object, ...]:
            now, models = self._there.get(each.slot, ()), len(self._on[each.slot])
            free = self._free[each.label] if want.nbytes else 0
            if self._is_tight:
                return each.is_cpu, free, each.slot
            return want.name not in now, each.is_cpu, -free, models, len(now), each.slot

        best = sorted((each for each in self._choices[want.name] if self._fits(want, each)), key=preference)
        labels = [each.label for each in best]
        turns = {each.slot: labels[:number].count(each.label) for number, each in enumerate(best)}
        return sorted(best, key=lambda each: turns[each.slot])

    def _fits(self, want: Want, where: Place) -> bool:
        on = self._on[where.slot]
        is_alone = not want.options or not any(map(want.conflict, on.values()))
        return is_alone and want.name not in on and want.nbytes <= self._free[where.label]

    def _put(self, want: Want, where: Place) -> bool:
        """Whether there was room."""
        if not self._fits(want, where):
            return False
        self._on[where.slot][want.name] = want
        self._free[where.label] -= want.nbytes
        self._copies[want.name] += 1
        return True

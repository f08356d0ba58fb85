"""From what runs to what is wanted, a slot at a time.

    a slot that runs something else ─► its turn ─► Open: a replacement beside it, if there is room ─► Retire the old one
                                                └► Retire the old one ─► Open                       └► Failed

A turn begins only while every other slot has what it should have, as far as it can. So at most one slot is missing, or
has two workers, whatever changes. A model that moves comes to its new slot before it leaves the old one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from pool.plan.wanted import Told


class Phase(Enum):
    """Of a seat: a slot's worker and those that follow it with the same models."""

    COMING = "its worker starts and loads"
    SERVING = "its worker takes jobs"
    DOWN = "its worker has ended; another may follow"
    LEAVING = "it was retired: its worker finishes what it runs, and ends"


COMING, SERVING, DOWN, LEAVING = Phase.COMING, Phase.SERVING, Phase.DOWN, Phase.LEAVING


class Seat(Protocol):
    @property
    def number(self) -> int: ...
    @property
    def told(self) -> Told: ...
    @property
    def phase(self) -> Phase: ...
    @property
    def missed(self) -> Collection[str]:
        """Models that it was told of and does not serve, once it is SERVING."""
        ...


@dataclass(frozen=True)
class Open:
    """A new seat for the slot, as the plan wants it."""

    number: int


@dataclass(frozen=True)
class Retire:
    seat: Any


@dataclass(frozen=True)
class Failed:
    """The turn has ended: the new seat did not come up, or not with all of its models."""

    seat: Any


class Rollout:
    def __init__(self) -> None:
        self.turn: int | None = None
        """The slot that is changed."""
        self._missed: set[str] = set()
        """What the slot did not serve before its turn either."""
        self._accepted: list[Seat] = []

    def accept(self, seat: Seat) -> None:
        """It has failed, and nothing can be taken back: what comes up of it takes over."""
        self._accepted.append(seat)

    def steps(
        self, wanted: Mapping[int, Told], seats: Collection[Seat], is_start: bool, fits: Callable[[Any], bool]
    ) -> Iterator[Open | Retire | Failed]:
        """What is to be done now, each at once. `is_start`: nothing has come up yet, so all slots come together.

        `fits(seat)`: whether a replacement has room beside the seat's worker.
        """
        slots = by_slot(wanted, seats)
        self._accepted = [s for s in self._accepted if s in seats and s.told == wanted.get(s.number)]
        for number, here in slots.items():
            for seat in here:
                if seat.phase in (COMING, DOWN) and seat.told != wanted.get(number):
                    yield Retire(seat)
        if is_start:
            for number in wanted:
                if not slots[number]:
                    yield Open(number)
            return
        while True:
            turn = self._next(wanted, slots) if self.turn is None else self.turn
            if turn is None:
                return
            if self.turn is None:
                self.turn = turn
                before = [set(seat.missed) for seat in slots[turn] if seat.told != wanted.get(turn)]
                self._missed = set.intersection(*before) if before else set()
            for step in self._turn(turn, wanted.get(turn), slots.get(turn, []), fits):
                yield step
                if isinstance(step, Failed):  # what follows depends on what is to blame
                    self.turn = None
                    return
            if self.turn is not None:
                return

    def is_done(self, wanted: Mapping[int, Told], seats: Collection[Seat]) -> bool:
        """Whether each slot has what it should have, or has failed at it."""
        is_quiet = self.turn is None and all(seat.phase in (SERVING, DOWN) for seat in seats)
        return is_quiet and self._next(wanted, by_slot(wanted, seats)) is None

    def _next(self, wanted: Mapping[int, Told], slots: Mapping[int, list[Seat]]) -> int | None:
        """The slot whose turn begins. Those that only gain models go first, and others once these serve."""
        gaining: list[int] = []
        others: list[int] = []
        for number, here in slots.items():
            right = wanted.get(number)
            if any(seat.phase is COMING and seat.told == right for seat in here):
                return None
            if all(seat.told == right for seat in here) and (here or right is None):
                continue
            if any(seat in self._accepted and seat.phase is DOWN and seat.told == right for seat in here):
                continue
            had = {name for seat in here for name in names(seat)}
            (gaining if had <= {each["name"] for each in (right or {"models": []})["models"]} else others).append(
                number
            )
        return next(iter((*gaining, *others)), None)

    def _turn(
        self, number: int, right: Told | None, here: list[Seat], fits: Callable[[Any], bool]
    ) -> Iterator[Open | Retire | Failed]:
        new = next((seat for seat in here if seat.told == right and seat.phase is not LEAVING), None)
        old = [seat for seat in here if seat.told != right and seat.phase is SERVING]
        if new is None and len(old) > 1:  # the last one came up in part, and is not what is wanted any more
            first, last = old[0], old[-1]
            yield Retire(first if wanted_names(right) & served(first) <= served(last) else last)
        elif new is None:
            if right is not None and (not here or (here == old and fits(old[0]))):
                yield Open(number)
            elif not here:
                self.turn = None
            elif right is None or here == old:
                yield from map(Retire, old)
        elif new not in self._accepted and (new.phase is DOWN or self._lost(new, old)):
            yield Failed(new)
        elif new.phase is SERVING:
            yield from map(Retire, old)
            if here == [new]:
                self.turn = None

    def _lost(self, new: Seat, old: list[Seat]) -> set[str]:
        """What the slot has served until now, or was to get, and does not."""
        return set(new.missed) - self._missed.difference(*map(served, old))


def wanted_names(right: Told | None) -> set[str]:
    return {each["name"] for each in right["models"]} if right is not None else set()


def names(seat: Seat) -> list[str]:
    return [each["name"] for each in seat.told["models"]]


def served(seat: Seat) -> set[str]:
    return set(names(seat)).difference(seat.missed)


def by_slot(wanted: Mapping[int, Told], seats: Collection[Seat]) -> dict[int, list[Seat]]:
    slots: dict[int, list[Seat]] = {number: [] for number in sorted({*wanted, *(seat.number for seat in seats)})}
    for seat in seats:
        slots[seat.number].append(seat)
    return slots

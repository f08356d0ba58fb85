"""From what runs to what is wanted, a slot at a time.

    a slot that runs something else ─► its turn ─► Open: a replacement beside it, if there is room ─► Retire the old one
                                                └► Retire the old one ─► Open                       └► Failed

A turn begins only while every other slot has what it should have, as far as it can. So at most one slot is missing, or
has two workers, whatever changes. A model that moves comes to its new slot before it leaves the old one.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from pool.core.slots import Slot, SlotState
from pool.devices import Device
from pool.plan.wanted import Told, models_of


class Phase(Enum):
    """Of a seat: a slot's worker and those that follow it with the same models."""

    COMING = "its worker starts and loads"
    SERVING = "its worker takes jobs"
    DOWN = "its worker has ended; another may follow"
    LEAVING = "it was retired: its worker finishes what it runs, and ends"


COMING, SERVING, DOWN, LEAVING = Phase.COMING, Phase.SERVING, Phase.DOWN, Phase.LEAVING


@dataclass(eq=False)
class Seat:
    """A slot, and a worker with those that follow it, all with the same models. A replacement has a seat of its own."""

    slot: Slot
    device: Device
    told: Told
    worker: Any = None  # a `pool.serve.worker.Worker`, or none
    jobs: int = 0  # that its workers have answered
    failed: dict[str, str] = field(default_factory=dict)  # by model, why it could not be loaded here
    left_out: set[str] = field(default_factory=set)  # models that workers died of, and are told of no more
    died_of: str = ""  # the model that its last worker was loading when it died
    is_accepted: bool = False  # it has failed, and nothing can be taken back: what comes up of it takes over

    @property
    def number(self) -> int:
        return self.slot.number

    def serves(self, model: str) -> bool:
        return self.slot.state is SlotState.READY and self.worker is not None and model in self.worker.loaded

    @property
    def phase(self) -> Phase:
        slot = self.slot
        if not slot.is_wanted:
            return LEAVING
        if slot.state is SlotState.READY:
            return SERVING
        return DOWN if slot.state in (SlotState.BACKOFF, SlotState.FATAL, SlotState.STUCK) else COMING


class Open(NamedTuple):
    """A new seat for the slot, as the plan wants it."""

    number: int


class Retire(NamedTuple):
    seat: Seat


class Failed(NamedTuple):
    """The turn has ended: the new seat did not come up, or not with all of its models."""

    seat: Seat


class Rollout:
    def __init__(self, fits: Callable[[Any], bool]) -> None:
        """`fits(seat)`: whether a replacement has room beside the seat's worker."""
        self._fits = fits
        self.turn: int | None = None  # the slot that is changed
        self._missed: set[tuple[str, str]] = set()  # what the slot did not serve before its turn either

    def steps(
        self, wanted: Mapping[int, Told], seats: Collection[Seat], is_start: bool
    ) -> Iterator[Open | Retire | Failed]:
        """What is to be done now, each at once. `is_start`: nothing has come up yet, so all slots come together."""
        slots = by_slot(wanted, seats)
        for seat in seats:
            if seat.phase in (COMING, DOWN) and seat.told != wanted.get(seat.number):
                yield Retire(seat)
        if is_start:
            for number in wanted:
                if not slots[number]:
                    yield Open(number)
            return
        here = [seat for seat in seats if seat.number == self.turn and seat.phase is not LEAVING]
        if here and all(seat.phase is SERVING for seat in here):
            is_unwanted = all(seat.told != wanted.get(seat.number) for seat in here)
            number = here[0].number
            if is_unwanted or (gap(number, wanted, slots) and self._next(wanted, slots) not in (None, number)):
                self.turn = None  # another slot may come first
        while True:
            turn = self._next(wanted, slots) if self.turn is None else self.turn
            if turn is None:
                return
            if self.turn is None:
                self.turn = turn
                before = [missed(seat) for seat in slots[turn] if seat.told != wanted.get(turn)]
                self._missed = set.intersection(*before) if before else set()
            for step in self._turn(turn, wanted.get(turn), slots.get(turn, [])):
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
        """The slot whose turn begins: first those that leave no model without a slot."""
        due: list[int] = []
        for number, here in slots.items():
            right = wanted.get(number)
            if any(seat.phase is COMING and seat.told == right for seat in here):
                return None
            is_given_up = any(s.is_accepted and s.phase is DOWN and s.told == right for s in here)
            if not is_given_up and (any(seat.told != right for seat in here) or (not here and right is not None)):
                due.append(number)
        return min(due, key=lambda number: (bool(gap(number, wanted, slots)), number), default=None)

    def _turn(self, number: int, right: Told | None, here: list[Seat]) -> Iterator[Open | Retire | Failed]:
        new = next((seat for seat in here if seat.told == right and seat.phase is not LEAVING), None)
        old = [seat for seat in here if seat.told != right and seat.phase is SERVING]
        if new is None and len(old) > 1:  # the last one came up in part, and is not what is wanted any more
            first, last = old[0], old[-1]
            yield Retire(first if models_of(right).keys() & served(first) <= served(last) else last)
        elif new is None:
            if right is not None and (not here or (here == old and self._fits(old[0]))):
                yield Open(number)
            elif not here:
                self.turn = None
            elif right is None or here == old:
                yield from map(Retire, old)
        elif not new.is_accepted and (new.phase is DOWN or self._lost(new, old)):
            yield Failed(new)
        elif new.phase is SERVING:
            yield from map(Retire, old)
            if here == [new]:
                self.turn = None

    def _lost(self, new: Seat, old: list[Seat]) -> set[tuple[str, str]]:
        """What the slot has served until now, or was to get, and does not."""
        still = set[str]().union(*map(served, old))
        return missed(new) - {(name, files) for name, files in self._missed if name not in still}


def served(seat: Seat) -> set[str]:
    return set(seat.told["models"]).difference(seat.failed)


def missed(seat: Seat) -> set[tuple[str, str]]:
    """By name and files."""
    return {(name, each["path"] + each["files"]) for name, each in seat.told["models"].items() if name in seat.failed}


def gap(number: int, wanted: Mapping[int, Told], slots: Mapping[int, list[Seat]]) -> set[str]:
    """The models that are wanted, and that nobody would serve after the turn of this slot."""
    after = set(models_of(wanted.get(number)))
    for seats in slots.values():
        after = after.union(*(served(seat) for seat in seats if seat.phase is SERVING and seat.number != number))
    here = set[str]().union(*(served(seat) for seat in slots[number] if seat.phase is SERVING))
    return (here & set[str]().union(*map(models_of, wanted.values()))) - after


def by_slot(wanted: Mapping[int, Told], seats: Collection[Seat]) -> dict[int, list[Seat]]:
    numbers = sorted({*wanted, *(seat.number for seat in seats)})
    return {number: [seat for seat in seats if seat.number == number] for number in numbers}

"""New settings come to one slot after the other, and the first that cannot serve with them ends that."""

import random

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.machine import Machine
from pool.core.policy import Policy, SlotPlan
from pool.core.slots import SlotState
from pool.roll import Roll
from pool.wire.signatures import ModelInfo
from pool.wire.worker_messages import ModelSettings, SessionSettings, Welcome

SESSION = SessionSettings(True, 0.0, True, False, 0, 0, {}, False)
DIED = told.Death("SIGSEGV", restartable=True)


def welcome(path: str, *more: str) -> Welcome:
    models = tuple(ModelSettings(name, path, warmup=True) for name in ("m", *more))
    return Welcome(2, 0, 1.0, SESSION, models)


OLD, NEW, NEWER = welcome("stub:old"), welcome("stub:new"), welcome("stub:newer")


class Seats:
    """The core and its roll, and workers that do as the test says. `given`: what each worker was told."""

    def __init__(self, slots: int = 3, **policy: int) -> None:
        plans = [SlotPlan(("m",))] * slots + [SlotPlan(())]
        self.machine = Machine(Policy(**policy), plans, random.Random(1))
        self.roll = Roll(self.machine.supervision, [OLD] * (slots + 1))
        self.given: dict[int, Welcome] = {}
        self.told: list[int] = []
        self.feed(told.Start())
        for slot in range(slots):
            self.up(slot)

    def feed(self, event: told.Event) -> None:
        for action in self.machine.handle(event, 1.0):
            if isinstance(action, do.SlotChanged):
                self.roll.changed(action)
            elif isinstance(action, do.WelcomeWorker):
                self.given[action.slot] = self.roll.welcome(action.slot)

    def turn(self) -> list[int]:
        """What the loop does between two events: which slots are asked to restart."""
        asked = []
        while self.roll.due():
            for event in self.roll.tend():
                asked.append(event.slot)
                self.feed(event)
        return asked

    def incarnation(self, slot: int) -> int:
        return self.machine.supervision.slots[slot].incarnation

    def state(self, slot: int) -> SlotState:
        return self.machine.supervision.slots[slot].state

    def up(self, slot: int) -> None:
        self.feed(told.WorkerHello(slot, self.incarnation(slot)))
        self.feed(told.WorkerReady(slot, self.incarnation(slot), 1, (ModelInfo("m", "stub:m", {}, False),)))

    def die(self, slot: int, death: told.Death = DIED) -> None:
        self.feed(told.WorkerExited(slot, self.incarnation(slot), death))
        self.feed(told.Tick())

    def replaced(self, slot: int) -> None:
        """The old worker has gone, and the new one comes up."""
        self.die(slot)
        self.up(slot)


@pytest.fixture
def seats() -> Seats:
    return Seats()


def test_one_after_the_other(seats: Seats) -> None:
    assert seats.roll.begin([NEW] * 4) == [0, 1, 2], "the seat without a model needs nothing"
    for slot in range(3):
        assert seats.turn() == [slot]
        assert seats.roll.status()["left"] == list(range(slot, 3))
        seats.die(slot)
        assert seats.turn() == [], "not before it is READY"
        seats.up(slot)
        assert seats.given == {number: NEW if number <= slot else OLD for number in range(3)}
    assert seats.turn() == []
    assert seats.roll.status() == {"left": [], "failure": ""}


def test_only_the_slots_that_it_concerns(seats: Seats) -> None:
    assert seats.roll.begin([OLD, NEW, OLD, NEW]) == [1]
    assert seats.turn() == [1]
    assert seats.roll.begin([OLD, NEW, OLD, NEW]) == [], "it has them, or will in a moment"
    assert seats.roll.status()["left"] == [1]


def test_the_order_of_the_models_is_no_setting() -> None:
    seats = Seats()
    swapped = Welcome(2, 0, 1.0, SESSION, tuple(reversed(welcome("stub:old", "n").models)))
    seats.roll = Roll(seats.machine.supervision, [welcome("stub:old", "n")] * 4)
    assert seats.roll.begin([swapped] * 4) == []


def test_a_slot_whose_turn_has_not_come_dies_and_has_the_former_settings(seats: Seats) -> None:
    seats.roll.begin([NEW] * 4)
    assert seats.turn() == [0]
    seats.die(2)
    seats.machine.handle(told.Tick(), 100.0)
    seats.up(2)
    assert seats.given[2] is OLD


@pytest.mark.parametrize("death", [DIED, told.Death("exit status 4", restartable=False)])
def test_the_first_that_does_not_come_up_ends_it_and_goes_back(seats: Seats, death: told.Death) -> None:
    seats.roll.begin([NEW] * 4)
    seats.turn()
    seats.replaced(0)
    assert seats.turn() == [1]
    seats.die(1)  # the old one
    seats.feed(told.WorkerHello(1, seats.incarnation(1)))
    assert seats.given[1] is NEW
    seats.die(1, death)
    assert seats.turn() == [1], "with what it had before, and at once"
    seats.up(1)
    assert seats.given == {0: NEW, 1: OLD, 2: OLD}
    assert seats.state(1) is SlotState.READY
    assert seats.turn() == []
    failure = str(seats.roll.status()["failure"])
    why = "did not come up with the new settings and goes back to the former ones, which stay in slot 2: "
    assert failure.startswith(f"slot 1 {why}")
    assert failure.endswith(death.text)


def test_a_reload_after_that_knows_what_each_slot_has(seats: Seats) -> None:
    seats.roll.begin([NEW] * 4)
    seats.turn()
    seats.replaced(0)
    seats.turn()
    seats.die(1)
    seats.die(1)
    seats.turn()
    seats.up(1)
    assert seats.roll.begin([OLD] * 4) == [0]
    assert seats.roll.status()["failure"] == ""
    assert seats.roll.begin([NEWER] * 4) == [0, 1, 2]


def test_a_reload_in_the_midst_begins_with_the_slot_that_is_down(seats: Seats) -> None:
    seats.roll.begin([NEW] * 4)
    seats.turn()
    seats.replaced(0)
    assert seats.turn() == [1]
    seats.die(1)
    assert seats.roll.begin([NEWER] * 4) == [0, 1, 2]
    assert seats.turn() == [1], "two are not to be down at once"
    seats.replaced(1)
    assert seats.turn() == [0]
    assert seats.given == {0: NEW, 1: NEWER, 2: OLD}


def test_slots_that_do_not_serve_anyway_come_last() -> None:
    seats = Seats(restart_intensity=0)
    seats.die(0)
    assert seats.state(0) is SlotState.FATAL
    assert seats.roll.begin([NEW] * 4) == [0, 1, 2]
    assert seats.turn() == [1]
    seats.replaced(1)
    assert seats.turn() == [2]
    seats.replaced(2)
    assert seats.turn() == [0], "with the new settings it may serve"
    seats.up(0)
    assert seats.given == {0: NEW, 1: NEW, 2: NEW}


def test_a_pool_that_stops_replaces_nobody(seats: Seats) -> None:
    seats.roll.begin([NEW] * 4)
    seats.feed(told.StopAsked("the test asked"))
    assert seats.turn() == []
    assert seats.roll.status()["left"] == []

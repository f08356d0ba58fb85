"""New settings come to one slot after the other, and the first that cannot serve with them ends that."""

import random
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Literal

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState, WorkerState
from pool.core.machine import Machine
from pool.core.policy import Policy, SlotPlan
from pool.plan.rollout import Refused, Rollout
from pool.wire.signatures import ModelInfo
from pool.wire.worker_messages import ModelSettings, TensorFlowSettings, Welcome
from simulation.driver import followed

SETTINGS = TensorFlowSettings(True, 0.0, True, False, 0, 0, {}, False)
DIED = told.Death("SIGSEGV", restartable=True)


def welcome(path: str, *more: str) -> Welcome:
    models = tuple(ModelSettings(name, path, warmup=True) for name in ("m", *more))
    return Welcome(2, 0, 1.0, SETTINGS, models)


def everywhere(told: Welcome, slots: int = 3) -> list[Welcome]:
    """Each slot is told this, but for the last one, where no model is placed."""
    return [told] * slots + [replace(told, models=())]


OLD, NEW, NEWER = welcome("stub:old"), welcome("stub:new"), welcome("stub:newer")
NOTHING = replace(OLD, models=())


class Slots:
    """The core and its roll, and workers that do as the test says. `given`: what each worker was told."""

    def __init__(self, slots: int = 3, replacement: Literal["auto", "off"] = "off", **policy: Any) -> None:
        plans = [SlotPlan(("m",))] * slots + [SlotPlan(())]
        self.machine = Machine(Policy(replacement=replacement, **policy), plans, random.Random(1))
        self.roll = Rollout(self.machine.fleet, everywhere(OLD, slots))
        self.given: dict[int, Welcome] = {}
        self.told: list[int] = []
        self.feed(told.Start())
        for slot in range(slots):
            self.up(slot)

    def feed(self, event: told.Event) -> None:
        self.machine.handle(event, 1.0)
        for action in followed(self.machine, 1.0):
            if isinstance(action, do.SlotChanged | do.WorkerChanged):
                if isinstance(action, do.SlotChanged) or action.state is WorkerState.GONE:
                    self.roll.changed(action)
            elif isinstance(action, do.WelcomeWorker):
                self.given[action.slot] = self.roll.welcome(action.slot)

    def turn(self) -> list[int]:
        """What the loop does between two events: which slots are asked to restart."""
        asked = []
        while self.roll.due():
            for event in self.roll.tend():
                if isinstance(event, told.RestartAsked):
                    asked.append(event.slot)
                self.feed(event)
        return asked

    def incarnation(self, slot: int) -> int:
        return self.machine.fleet.slots[slot].worker.incarnation

    def state(self, slot: int) -> SlotState:
        return self.machine.fleet.slots[slot].state

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
def slots() -> Slots:
    return Slots()


def test_one_after_the_other(slots: Slots) -> None:
    assert slots.roll.begin(everywhere(NEW)) == [0, 1, 2], "the slot without a model needs nothing"
    for slot in range(3):
        assert slots.turn() == [slot]
        assert slots.roll.status()["left"] == list(range(slot, 3))
        slots.die(slot)
        assert slots.turn() == [], "not before it is READY"
        slots.up(slot)
        assert slots.given == {number: NEW if number <= slot else OLD for number in range(3)}
    assert slots.turn() == []
    assert slots.roll.status() == {"left": [], "failure": ""}


def test_only_the_slots_that_it_concerns(slots: Slots) -> None:
    assert slots.roll.begin([OLD, NEW, OLD, NOTHING]) == [1]
    assert slots.turn() == [1]
    assert slots.roll.begin([OLD, NEW, OLD, NOTHING]) == [], "it has them, or will in a moment"
    assert slots.roll.status()["left"] == [1]


def test_the_order_of_the_models_is_no_setting() -> None:
    slots = Slots()
    swapped = Welcome(2, 0, 1.0, SETTINGS, tuple(reversed(welcome("stub:old", "n").models)))
    slots.roll = Rollout(slots.machine.fleet, everywhere(welcome("stub:old", "n")))
    assert slots.roll.begin(everywhere(swapped)) == []


def test_what_a_worker_is_warmed_up_with_is_no_reason_for_another_but_the_next_one_has_it(slots: Slots) -> None:
    wider = replace(OLD, models=tuple(replace(model, batch_sizes=(1, 64)) for model in OLD.models))
    assert slots.roll.begin(everywhere(wider)) == []
    assert slots.turn() == []
    slots.die(2)
    followed(slots.machine, 100.0)
    slots.up(2)
    assert slots.given[2] is wider


def test_a_slot_whose_turn_has_not_come_dies_and_has_the_former_settings(slots: Slots) -> None:
    slots.roll.begin(everywhere(NEW))
    assert slots.turn() == [0]
    slots.die(2)
    followed(slots.machine, 100.0)
    slots.up(2)
    assert slots.given[2] is OLD


@pytest.mark.parametrize("death", [DIED, told.Death("exit status 4", restartable=False)])
def test_the_first_that_does_not_come_up_ends_it_and_goes_back(slots: Slots, death: told.Death) -> None:
    slots.roll.begin(everywhere(NEW))
    slots.turn()
    slots.replaced(0)
    assert slots.turn() == [1]
    slots.die(1)  # the old one
    slots.feed(told.WorkerHello(1, slots.incarnation(1)))
    assert slots.given[1] is NEW
    slots.die(1, death)
    assert slots.turn() == [1], "with what it had before, and at once"
    slots.up(1)
    assert slots.given == {0: NEW, 1: OLD, 2: OLD}
    assert slots.state(1) is SlotState.READY
    assert slots.turn() == []
    failure = str(slots.roll.status()["failure"])
    why = "did not start with the new settings and returns to the former ones, which stay in slot 2: "
    assert failure.startswith(f"slot 1 {why}")
    assert failure.endswith(death.text)


def test_a_reload_after_that_knows_what_each_slot_has(slots: Slots) -> None:
    slots.roll.begin(everywhere(NEW))
    slots.turn()
    slots.replaced(0)
    slots.turn()
    slots.die(1)
    slots.die(1)
    slots.turn()
    slots.up(1)
    assert slots.roll.begin(everywhere(OLD)) == [0]
    assert slots.roll.status()["failure"] == ""
    assert slots.roll.begin(everywhere(NEWER)) == [0, 1, 2]


def test_a_reload_in_the_midst_begins_with_the_slot_that_is_down(slots: Slots) -> None:
    slots.roll.begin(everywhere(NEW))
    slots.turn()
    slots.replaced(0)
    assert slots.turn() == [1]
    slots.die(1)
    assert slots.roll.begin(everywhere(NEWER)) == [0, 1, 2]
    assert slots.turn() == [1], "two are not to be down at once"
    slots.replaced(1)
    assert slots.turn() == [0]
    assert slots.given == {0: NEW, 1: NEWER, 2: OLD}


def test_slots_that_do_not_serve_anyway_come_last() -> None:
    slots = Slots(restart_intensity=0)
    slots.die(0)
    assert slots.state(0) is SlotState.FATAL
    assert slots.roll.begin(everywhere(NEW)) == [0, 1, 2]
    assert slots.turn() == [1]
    slots.replaced(1)
    assert slots.turn() == [2]
    slots.replaced(2)
    assert slots.turn() == [0], "with the new settings it may serve"
    slots.up(0)
    assert slots.given == {0: NEW, 1: NEW, 2: NEW}


def test_a_pool_that_stops_replaces_nobody(slots: Slots) -> None:
    slots.roll.begin(everywhere(NEW))
    slots.feed(told.StopAsked("the test asked"))
    assert slots.turn() == []
    assert slots.roll.status()["left"] == []


# --- with replacements ----------------------------------------------------------------------------------------------


def gets_ready(slots: Slots, slot: int, incarnation: int = 2, *, warm: bool = True) -> None:
    """The replacement is told what it is to serve, and, if it is `warm`, takes the slot."""
    slots.feed(told.WorkerSpawned(slot, incarnation, 4711))
    slots.feed(told.WorkerHello(slot, incarnation))
    if warm:
        slots.feed(told.WorkerReady(slot, incarnation, 1, (ModelInfo("m", "stub:m", {}, False),)))
        slots.feed(told.WorkerExited(slot, incarnation - 1, told.Death("exit status 0", True)))


@pytest.fixture
def beside() -> Slots:
    return Slots(replacement="auto")


def test_each_slots_replacement_has_the_new_settings(beside: Slots) -> None:
    beside.roll.begin(everywhere(NEW))
    for slot in range(3):
        assert beside.turn() == [slot]
        gets_ready(beside, slot, warm=False)
        assert (beside.given[slot], beside.state(slot)) == (NEW, SlotState.READY)
        assert beside.turn() == [], "not before it sits there"
        beside.feed(told.WorkerReady(slot, 2, 1, (ModelInfo("m", "stub:m", {}, False),)))
        beside.feed(told.WorkerExited(slot, 1, told.Death("exit status 0", True)))
    assert beside.roll.status() == {"left": [], "failure": ""}


def test_a_replacement_that_fails_ends_the_roll_and_nobody_is_restarted(beside: Slots) -> None:
    beside.roll.begin(everywhere(NEW))
    beside.turn()
    gets_ready(beside, 0)
    assert beside.turn() == [1]
    gets_ready(beside, 1, warm=False)
    beside.feed(told.WorkerExited(1, 2, told.Death("exit status 74 MODEL_CANNOT_LOAD", restartable=False)))
    assert beside.turn() == []
    assert (beside.state(1), beside.incarnation(1)) == (SlotState.READY, 1)
    assert str(beside.roll.status()["failure"]).startswith("slot 1 did not start with the new settings and returns")
    assert beside.roll.welcome(0) is NEW
    assert beside.roll.welcome(1) is OLD
    assert beside.roll.begin(everywhere(OLD)) == [0], "the others have had them all along"


def test_one_that_fails_in_the_seat_goes_back_too(beside: Slots) -> None:
    """The former worker died while it got ready."""
    beside.roll.begin(everywhere(NEW))
    beside.turn()
    gets_ready(beside, 0, warm=False)
    beside.die(0)
    assert (beside.state(0), beside.incarnation(0)) == (SlotState.LOADING, 2)
    beside.die(0)
    assert beside.turn() == [0]
    beside.up(0)
    assert beside.given[0] is OLD
    assert beside.roll.status()["left"] == []


def test_one_that_fails_after_another_was_told_of_the_new_settings_takes_that_back(beside: Slots) -> None:
    beside.roll.begin(everywhere(NEW))
    beside.turn()
    gets_ready(beside, 0, warm=False)
    beside.feed(told.WorkerBroken(0, 2, "nonsense"))
    beside.die(0)
    beside.feed(told.WorkerHello(0, 3))
    assert beside.given[0] is NEW
    beside.feed(told.WorkerExited(0, 2, told.Death("SIGKILL", True)))
    assert beside.turn() == [0], "what failed beside it will not do in the slot"
    beside.die(0)
    beside.up(0)
    assert beside.given[0] is OLD


def test_a_reload_in_the_midst_has_another_replacement_come(beside: Slots) -> None:
    beside.roll.begin(everywhere(NEW))
    beside.turn()
    gets_ready(beside, 0, warm=False)
    assert beside.roll.begin(everywhere(NEWER)) == [0, 1, 2]
    assert beside.turn() == [0]
    beside.feed(told.WorkerExited(0, 2, told.Death("exit status 0", True)))
    beside.feed(told.WorkerSpawned(0, 3, 4712))
    beside.feed(told.WorkerHello(0, 3))
    assert beside.given[0] is NEWER
    beside.feed(told.WorkerExited(0, 3, DIED))
    assert beside.roll.welcome(0) is OLD, "what has never served is nothing to go back to"


def test_one_that_comes_up_as_it_is_overtaken_is_what_the_next_goes_back_to(beside: Slots) -> None:
    """It was READY before anybody could ask for another one, and has served."""
    beside.roll.begin(everywhere(NEW))
    beside.turn()
    gets_ready(beside, 0, warm=False)
    beside.roll.begin(everywhere(NEWER))
    beside.feed(told.WorkerReady(0, 2, 1, (ModelInfo("m", "stub:m", {}, False),)))
    beside.feed(told.WorkerExited(0, 1, told.Death("exit status 0", True)))
    assert (beside.state(0), beside.incarnation(0)) == (SlotState.READY, 2)
    assert beside.turn() == [0]
    gets_ready(beside, 0, incarnation=3, warm=False)
    assert beside.given[0] is NEWER
    beside.feed(told.WorkerExited(0, 3, DIED))
    assert (beside.state(0), beside.incarnation(0)) == (SlotState.READY, 2)
    assert beside.roll.welcome(0) is NEW
    assert beside.roll.begin(everywhere(OLD)) == [0], "it has the settings in between"


def test_the_settings_of_before_taken_back_in_the_midst(beside: Slots) -> None:
    beside.roll.begin(everywhere(NEW))
    beside.turn()
    gets_ready(beside, 0, warm=False)
    assert beside.roll.begin(everywhere(OLD)) == [0], "what gets ready there is not to be seated"
    assert beside.turn() == [0]
    beside.feed(told.WorkerExited(0, 2, told.Death("exit status 0", True)))
    gets_ready(beside, 0, incarnation=3)
    assert beside.given[0] is OLD


def versioned(version: int) -> Welcome:
    model = ModelSettings("m", f"models/m/{version}", warmup=True, version=version)
    return replace(OLD, models=(model,))


def test_a_version_that_did_not_come_up_is_told_once(beside: Slots) -> None:
    beside.roll.begin(everywhere(versioned(1)))
    beside.turn()
    gets_ready(beside, 0, warm=False)
    assert beside.roll.is_under_way
    beside.feed(told.WorkerExited(0, 2, DIED))
    refused = beside.roll.take_refused()
    assert refused == Refused(0, OLD, versioned(1), DIED)
    assert beside.roll.take_refused() is None
    assert not beside.roll.is_under_way


def test_settings_that_did_not_come_up_are_no_version(beside: Slots) -> None:
    beside.roll.begin(everywhere(NEW))
    beside.turn()
    gets_ready(beside, 0, warm=False)
    beside.feed(told.WorkerExited(0, 2, DIED))
    assert beside.roll.take_refused() == Refused(0, OLD, NEW, DIED)


def test_a_model_that_is_new_and_did_not_come_up_is_told(beside: Slots) -> None:
    more = welcome("stub:old", "new")
    beside.roll.begin(everywhere(more))
    (planned, _) = beside.roll.tend()
    assert planned == told.SlotPlanned(0, ("m", "new"))
    beside.feed(planned)
    beside.feed(told.RestartAsked(0))
    gets_ready(beside, 0, warm=False)
    beside.feed(told.WorkerExited(0, 2, DIED))
    assert beside.roll.take_refused() == Refused(0, OLD, more, DIED)
    assert list(beside.roll.plans()) == [told.SlotPlanned(0, ("m",))], "the core is told that it went back"
    assert beside.roll.begin(everywhere(OLD), back=True) == []
    assert beside.roll.status()["failure"] != ""


def test_a_slot_whose_device_is_gone_has_no_turn_and_the_new_settings_if_it_ever_comes_up() -> None:
    slots, lost = Slots(), {0}
    slots.roll = Rollout(slots.machine.fleet, everywhere(OLD), lost.__contains__)
    assert slots.roll.begin(everywhere(NEW)) == [1, 2]
    assert slots.roll.welcome(0) == NEW
    assert slots.turn() == [1]
    lost.add(1)
    assert slots.roll.begin(everywhere(NEWER)) == [2], "it is not waited for any more"
    slots.die(1, told.Death("gpu:1 is gone", restartable=False))
    assert slots.turn() == [2]
    assert slots.roll.left == [2]
    slots.replaced(2)
    assert slots.given[2] == NEWER
    assert not slots.roll.is_under_way


def test_a_device_that_vanishes_in_its_turn_does_not_take_the_new_settings_from_the_others() -> None:
    slots, lost = Slots(), set[int]()
    slots.roll = Rollout(slots.machine.fleet, everywhere(OLD), lost.__contains__)
    assert slots.roll.begin(everywhere(NEW)) == [0, 1, 2]
    assert slots.turn() == [0]
    lost.add(0)
    slots.die(0, told.Death("gpu:0 is gone", restartable=False))
    assert slots.roll.take_refused() is None
    assert slots.turn() == [1]
    slots.replaced(1)
    assert slots.turn() == [2]
    slots.replaced(2)
    assert not slots.roll.is_under_way
    assert slots.roll.welcome(0) == NEW, "which it has if it ever comes up"
    assert slots.roll.status()["failure"] == ""


def test_what_goes_has_its_jobs_finished_first(beside: Slots) -> None:
    asked: list[set[str]] = []
    busy = True

    def unfinished(names: Collection[str]) -> bool:
        asked.append(set(names))
        return busy and bool(names)

    more = welcome("stub:old", "new")
    for slot in range(3):
        beside.feed(told.SlotPlanned(slot, ("m", "new")))
    roll = Rollout(beside.machine.fleet, everywhere(more), unfinished=unfinished)
    assert roll.begin(everywhere(OLD)) == [0, 1, 2]
    assert not roll.due()
    assert list(roll.tend()) == []
    assert roll.awaits_jobs
    assert roll.is_under_way
    assert roll.status()["left"] == [0, 1, 2]
    busy = False
    assert roll.due()
    assert list(roll.tend())[-1] == told.RestartAsked(0, sparing=True)
    assert not roll.due()
    assert not roll.awaits_jobs, "a worker is awaited"
    assert {frozenset(names) for names in asked} == {frozenset({"new"})}

"""What is said of models that could not be loaded, and of those that can be asked."""

from pool.core import events as told
from pool.wire.readiness import left_out, why_not_ready
from pool.wire.records import Unloadable
from simulation.driver import Driver
from support import told_pool

LEFT_OUT = [("x", 0, "bad"), ("y", 0, "worse"), ("x", 1, "bad"), ("x", 2, "no such GPU")]
HELP = "mend it, then run `pool reload`"


def test_slots_with_the_same_reason_have_one_line() -> None:
    assert left_out([Unloadable(*each) for each in LEFT_OUT]) == [
        f"model x could not be loaded in slots 0, 1: bad; {HELP}",
        f"model y could not be loaded in slot 0: worse; {HELP}",
        f"model x could not be loaded in slot 2: no such GPU; {HELP}",
    ]


def test_a_model_that_no_slot_has_is_not_ready_and_says_why_and_another_is() -> None:
    driver = Driver(["a"], ["x"]).serve()
    told = [{"model": name, "slot": slot, "why": why} for name, slot, why in (("x@3", 0, "bad"), ("y", 0, "worse"))]
    found = told_pool.status(driver, unloadable=told)
    assert why_not_ready(found, "a") == ""
    assert why_not_ready(found, "x") == "", "another slot has it"
    driver.give_up(1, "why")
    found = told_pool.status(driver, unloadable=told)
    assert why_not_ready(found, None) == ""
    said = why_not_ready(found, "x")
    assert said.startswith("x is not served: slot 1 is FATAL: ")
    assert said.endswith(f"; model x@3 could not be loaded in slot 0: bad; {HELP}")


def test_a_model_that_was_unloaded_is_not_ready_though_its_worker_still_is() -> None:
    driver = Driver(["a", "b"], ["b"]).serve()
    driver.feed(told.SlotPlanned(0, ("b",)))
    assert [(each.name, each.ready_slots) for each in told_pool.models(driver)] == [("a", ()), ("b", (0, 1))]
    assert why_not_ready(told_pool.status(driver), "a") == "a is no longer served"
    assert why_not_ready(told_pool.status(driver), "b") == ""
    driver.feed(told.SlotPlanned(0, ("a", "b")))
    assert why_not_ready(told_pool.status(driver), "a") == ""
    assert [each.ready_slots for each in told_pool.models(driver)] == [(0,), (0, 1)]

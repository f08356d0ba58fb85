"""Jobs that ask for a version are answered by that version, or told that it is not there. Slot 0 is on gpu:0."""

from typing import Any

import pytest

from pool.core import events as told
from pool.core.fleet import SlotState
from pool.wire.faults import Fault
from simulation.driver import Driver, payloads


def served(*placement: list[str], **options: Any) -> Driver:
    """Version 1 of model m."""
    return Driver(*placement, versions={"m": 1}, **options).serve()


def renew(driver: Driver, slot: int, version: int | None = None) -> None:
    """The slot's worker has this version after it: a restart, without a replacement."""
    if version is not None:
        driver.versions["m"] = version
    driver.feed(told.RestartAsked(slot))
    while driver.state(slot) is not SlotState.STARTING:
        driver.die(slot)
        driver.pass_time(0.1)
    driver.up(slot)


def test_the_version_that_is_served_may_be_asked_for() -> None:
    driver = served(["m"])
    driver.submit(version=1)
    driver.done(driver.run_of(1))
    assert driver.result(1) == (("answer to", "payload 1"),)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (2, "model 'm': version 2 is not served; served: 1"),
        (-1, "model 'm': version -1 is not served; served: 1"),
        ("stable", "model 'm': no version has the label 'stable'; served: 1"),
    ],
)
def test_another_one_is_refused_and_what_is_served_is_told(version: int | str, text: str) -> None:
    driver = served(["m"])
    driver.submit(version=version)
    assert driver.fault(1) is Fault.MODEL_NOT_FOUND
    assert driver.failed(1).text == text


def test_a_model_without_versions_has_none() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(version=1)
    assert driver.fault(1) is Fault.MODEL_NOT_FOUND
    assert driver.failed(1).text == "model 'm' is not served from a folder of numbered versions: leave `version` out"


def test_before_a_worker_is_up_the_first_version_is_waited_for_and_no_other() -> None:
    driver = Driver(["m"], versions={"m": 1})
    driver.start()
    driver.submit(version=1)
    driver.submit(version=2)
    assert driver.fault(2) is Fault.MODEL_NOT_FOUND
    driver.up(0)
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_while_versions_change_each_job_runs_where_its_version_is() -> None:
    driver = served(["m"], ["m"], replacement="off")
    renew(driver, 0, version=2)
    for _ in range(3):
        driver.submit(version=1)
        driver.submit(version=2)
    for number in range(1, 7):
        driver.done(driver.run_of(number))
    where = [driver.run_of(number).slot for number in range(1, 7)]
    assert where == [1, 0] * 3
    driver.submit(version=3)
    assert driver.failed(7).text == "model 'm': version 3 is not served; served: 1, 2"


def test_a_device_with_another_version_is_told() -> None:
    driver = served(["m"], ["m"], ["m"], replacement="off")
    renew(driver, 0, version=2)
    driver.submit(version=2, device="gpu:1")
    assert driver.fault(1) is Fault.MODEL_NOT_FOUND
    assert driver.failed(1).text == "model 'm': version 2 is not served on device 'gpu:1'; served: 1"
    driver.submit(version=2, device="gpu:0")
    assert driver.run_of(2).slot == 0


def test_jobs_of_a_version_wait_for_its_slot_and_others_use_the_idle_one() -> None:
    driver = served(["m"], ["m"], replacement="off")
    renew(driver, 0, version=2)
    for _ in range(3):
        driver.submit(version=1)
    driver.submit()
    assert [run.slot for run in driver.running()] == [1, 0]


def test_what_waits_for_a_version_that_goes_is_told_and_nothing_of_it_runs_on_the_other() -> None:
    driver = served(["m"], replacement="off")
    for _ in range(3):
        driver.submit(version=1)
    driver.submit()
    driver.feed(told.RestartAsked(0))
    driver.done(driver.run_of(1))
    driver.versions["m"] = 2
    driver.die(0)
    driver.pass_time(0.1)
    driver.up(0)
    assert driver.result(1)
    for number in (2, 3):
        assert driver.fault(number) is Fault.MODEL_NOT_FOUND
        assert driver.failed(number).text == "model 'm': version 1 is not served; served: 2"
    driver.done(driver.run_of(4))
    assert driver.result(4), "who asks for no version is served by any"


def test_a_version_whose_worker_died_is_waited_for() -> None:
    driver = served(["m"])
    driver.submit(version=1)
    driver.die(0)
    while driver.state(0) is not SlotState.STARTING:
        driver.pass_time(0.1)
    driver.up(0)
    driver.done(driver.run_of(1))
    assert driver.result(1)


def test_a_version_whose_slots_are_given_up_is_lost_like_a_model() -> None:
    driver = served(["m"], ["m"], replacement="off")
    renew(driver, 0, version=2)
    driver.submit(version=1)
    driver.submit(version=1)
    driver.give_up(1, "exit status 4")
    for number in (1, 2):
        assert driver.fault(number) is Fault.WORKER_LOST
    assert "no worker is left for model 'm', version 1: slot 1 is FATAL" in driver.failed(2).text


def test_jobs_of_one_version_run_together_and_not_with_others() -> None:
    driver = served(["m"])
    driver.submit(rows=1, form=b"another")
    for version in (1, None, 1):
        driver.submit(rows=1, version=version)
    together = set()
    while driver.running():
        (run,) = driver.running()
        together.add(payloads(run))
        driver.done(run)
    assert together == {("payload 1",), ("payload 2", "payload 4"), ("payload 3",)}


def test_of_versions_that_are_gone_nothing_is_kept() -> None:
    driver = served(["m"], replacement="off")
    for version in range(2, 40):
        driver.submit(version=version - 1, timeout_s=0.5)
        renew(driver, 0, version=version)
    assert len(driver.machine.backlog.models["m"].lines) <= 3


def test_a_replacement_brings_its_version() -> None:
    driver = served(["m"], replacement="always")
    driver.versions["m"] = 2
    driver.feed(told.RestartAsked(0))
    driver.feed(told.WorkerHello(0, 2))
    driver.submit(version=2)
    assert driver.fault(1) is Fault.MODEL_NOT_FOUND, "it is not there yet"
    driver.feed(told.WorkerReady(0, 2, 1, driver.infos(["m"])))
    driver.submit(version=2)
    driver.done(driver.run_of(2))
    assert driver.result(2)

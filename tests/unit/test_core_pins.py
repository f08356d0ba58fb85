"""Jobs that ask for a device run there or nowhere. Slots 0 and 1 are on gpu:0, 2 and 3 on gpu:1."""

import pytest

from pool.wire.faults import Fault
from simulation.driver import Driver, RunBatch, every, one, payloads


def slots(driver: Driver) -> list[int]:
    return [run.slot for run in driver.running()]


@pytest.mark.parametrize(("device", "allowed"), [("gpu:0", {0, 1}), ("gpu:1", {2, 3}), ("slot:3", {3})])
def test_a_pinned_job_runs_where_it_asked_to(device: str, allowed: set[int]) -> None:
    driver = Driver(*[["m"]] * 4).serve()
    for _ in range(6):
        driver.submit(device=device)
    assert set(slots(driver)) == allowed
    assert len(slots(driver)) == len(allowed), "the others wait, though lanes are idle"


def test_jobs_that_ask_for_nothing_use_the_lanes_that_are_left() -> None:
    driver = Driver(["m"], ["m"], ["m"]).serve()
    driver.submit(device="gpu:1")
    driver.submit(device="gpu:1")
    for _ in range(2):
        driver.submit()
    assert sorted(slots(driver)) == [0, 1, 2]
    assert payloads(one(driver.done(driver.run_of(1)), RunBatch)) == ("payload 2",)


def test_pinned_jobs_and_others_take_turns() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    for _ in range(3):
        driver.submit(device="slot:0")
    for _ in range(3):
        driver.submit()
    order = []
    while driver.running():
        (run,) = driver.running()
        order.append("pinned" if payloads(run)[0] in ("payload 2", "payload 3", "payload 4") else "free")
        driver.done(run)
    assert sorted(order) == ["free"] * 4 + ["pinned"] * 3
    assert order[1:] in (["pinned", "free"] * 3, ["free", "pinned"] * 3)


def test_jobs_for_one_device_run_together() -> None:
    driver = Driver(["m"], ["m"]).serve()
    driver.submit(rows=1, device="slot:1", form=b"another")
    for client in (b"a", b"b"):
        driver.submit(rows=1, device="slot:1", client=client)
    assert len(one(driver.done(driver.run_of(1)), RunBatch).parts) == 2


def test_a_device_that_is_none_is_refused_and_the_choices_are_told() -> None:
    driver = Driver(["m"], ["m"], ["m"], ["other"]).serve()
    assert every(driver.submit(device="gpu:7"), RunBatch) == []
    assert driver.fault(1) is Fault.INVALID_INPUT
    assert driver.failed(1).text == "device 'gpu:7' is not a device of this pool; the model is on: gpu:0, gpu:1"


def test_a_device_without_the_model_is_refused_and_the_choices_are_told() -> None:
    driver = Driver(["m"], ["m"], ["other"]).serve()
    driver.submit(device="gpu:1")
    assert driver.fault(1) is Fault.INVALID_INPUT
    assert driver.failed(1).text == "device 'gpu:1' does not hold model m; the model is on: gpu:0"


def test_a_refused_name_of_any_length_is_told_in_short() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(device="x" * 1_000_000)
    assert len(driver.failed(1).text) < 300


def test_a_pinned_job_waits_for_its_worker_though_others_are_idle() -> None:
    driver = Driver(["m"], [], ["m"]).serve()
    driver.die(2)
    assert driver.submit(device="gpu:1") == []
    driver.pass_time(1.0)
    assert one(driver.up(2), RunBatch).slot == 2


def test_a_pinned_job_that_has_lost_its_worker_does_not_run_elsewhere() -> None:
    driver = Driver(["m"], [], ["m"]).serve()
    driver.submit(device="gpu:1")
    assert every(driver.die(2), RunBatch) == []
    driver.pass_time(1.0)
    assert one(driver.up(2), RunBatch).slot == 2


def test_when_the_device_is_given_up_its_jobs_are_answered_at_once_and_no_others() -> None:
    driver = Driver(["m"], [], ["m"], restart_intensity=0).serve()
    driver.submit()  # on slot 0
    driver.submit()  # on slot 2
    driver.submit(device="gpu:1")
    driver.submit()
    driver.give_up(2, "exit status 4")
    assert driver.fault(3) is Fault.WORKER_LOST
    assert "no worker is left for model 'm' on device 'gpu:1'" in driver.failed(3).text
    assert "slot 2 is FATAL" in driver.failed(3).text
    assert list(driver.answers()) == [3]
    driver.submit(device="gpu:1")
    assert driver.fault(5) is Fault.WORKER_LOST

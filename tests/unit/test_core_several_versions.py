"""Jobs of a model of which several versions are served: which one each gets, and what they are told otherwise."""

import random
from dataclasses import replace
from typing import Any

import pytest

from pool.core import events as told
from pool.core.fleet import SlotState
from pool.core.policy import ModelPolicy
from pool.core.versions import Versions
from pool.wire.faults import Fault
from simulation.driver import Driver, payloads

LABELS = {"stable": 1, "canary": 3}


def driver_of(*placement: list[str], **options: Any) -> Driver:
    return Driver(*placement, versions={"m@1": 1, "m@3": 3}, **options)


def name(driver: Driver, *numbers: int, **labels: Any) -> None:
    """From now on jobs get these, by these labels."""
    versions = {"m": Versions(numbers, labels)} if numbers else {}
    driver.feed(told.PolicyChanged(replace(driver.policy, versions=versions)))


def both(*placement: list[str], **options: Any) -> Driver:
    driver = driver_of(*(placement or (["m@1", "m@3"],)), **options).serve()
    name(driver, 1, 3, **LABELS)
    return driver


@pytest.mark.parametrize(
    ("version", "entry"), [(None, "m@3"), (1, "m@1"), (3, "m@3"), ("stable", "m@1"), ("canary", "m@3")]
)
def test_a_job_gets_the_version_that_it_names(version: int | str | None, entry: str) -> None:
    driver = both()
    driver.submit(version=version)
    assert driver.run_of(1).model == entry
    driver.done(driver.run_of(1))
    assert driver.result(1)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (2, "model 'm': version 2 is not served; served: stable = 1, canary = 3"),
        (-1, "model 'm': version -1 is not served; served: stable = 1, canary = 3"),
        ("", "model 'm': no version has the label ''; served: stable = 1, canary = 3"),
        ("x" * 999, "model 'm': no version has the label '" + "x" * 79 + "; served: stable = 1, canary = 3"),
    ],
)
def test_another_one_is_refused_with_those_that_are_served(version: int | str, text: str) -> None:
    driver = both()
    driver.submit(version=version)
    assert driver.fault(1) is Fault.MODEL_NOT_FOUND
    assert driver.failed(1).text == text


def test_a_version_is_a_model_by_its_own_name_too() -> None:
    driver = both()
    driver.submit("m@1")
    assert driver.run_of(1).model == "m@1"
    driver.submit("m@1", version=3)
    assert driver.failed(2).text == "model 'm@1': version 3 is not served; served: 1"


def test_who_names_no_model_that_there_is_hears_of_models_and_not_of_their_versions() -> None:
    driver = both()
    driver.submit("else")
    assert (driver.failed(1).text, driver.failed(1).others) == ("no model 'else'", "; there are: m")


def test_a_label_that_moves_concerns_the_jobs_that_come_later() -> None:
    driver = both()
    for _ in range(2):
        driver.submit(version="stable")
    name(driver, 1, 3, stable=3)
    driver.submit(version="stable")
    driver.submit(version="canary")
    assert driver.failed(4).text == "model 'm': no version has the label 'canary'; served: 1, stable = 3"
    while driver.running():
        driver.done(driver.running()[0])
    assert [driver.run_of(number).model for number in (1, 2, 3)] == ["m@1", "m@1", "m@3"]


def test_jobs_of_two_versions_are_never_in_one_batch() -> None:
    driver = both()
    driver.submit(rows=1, version=1)
    for version in (3, 1, None, "stable", "canary"):
        driver.submit(rows=1, version=version)
    together = set()
    while driver.running():
        (run,) = driver.running()
        together.add((run.model, payloads(run)))
        driver.done(run)
    one, three = ("payload 3", "payload 5"), ("payload 2", "payload 4", "payload 6")
    assert together == {("m@1", ("payload 1",)), ("m@1", one), ("m@3", three)}


def test_a_large_job_is_answered_by_one_version_though_the_default_changes_meanwhile() -> None:
    driver = both(["m@1", "m@3"], ["m@1", "m@3"])
    name(driver, 1)
    driver.submit(rows=200)
    name(driver, 1, 3)
    used = set()
    while driver.running():
        for run in driver.running():
            used.add(run.model)
            driver.done(run)
    assert used == {"m@1"}
    driver.submit()
    assert driver.run_of(2).model == "m@3"


def test_where_no_worker_of_the_newest_is_left_jobs_get_the_next_one() -> None:
    driver = both(["m@1"], ["m@3"], restart_intensity=0)
    driver.submit()
    assert driver.run_of(1).model == "m@3"
    driver.give_up(1, "exit status 4")
    assert driver.state(1) is SlotState.FATAL
    driver.submit()
    assert driver.run_of(2).model == "m@1"
    driver.submit(version=3)
    assert driver.fault(3) is Fault.WORKER_LOST, "who names it is told"


def test_before_any_is_ready_jobs_wait_for_the_newest() -> None:
    driver = driver_of(["m@1", "m@3"])
    driver.start()
    name(driver, 1, 3)
    driver.submit()
    driver.submit(version=1)
    driver.up(0)
    while driver.running():
        driver.done(driver.running()[0])
    assert [driver.run_of(number).model for number in (1, 2)] == ["m@3", "m@1"]


def test_a_version_that_jobs_get_no_more_finishes_those_that_it_has_as_they_were_batched() -> None:
    driver = driver_of(["m@1", "m@3"]).serve()
    models = {f"m@{number}": ModelPolicy(max_batch=2) for number in (1, 3)}
    driver.feed(told.PolicyChanged(replace(driver.policy, versions={"m": Versions((1, 3))}, models=models)))
    for _ in range(6):
        driver.submit(version=1, rows=1)
    less = {"m@3": models["m@3"]}
    driver.feed(told.PolicyChanged(replace(driver.policy, versions={"m": Versions((3,))}, models=less)))
    driver.submit(version=1)
    assert driver.failed(7).text == "model 'm': version 1 is not served; served: 3"
    largest = 0
    while driver.running():
        largest = max(largest, len(payloads(driver.running()[0])))
        driver.done(driver.running()[0])
    assert all(driver.result(number) for number in range(1, 7))
    assert largest == 2


@pytest.mark.parametrize("seed", range(20))
def test_each_job_is_answered_by_the_version_that_it_named_whatever_comes_and_goes(seed: int) -> None:
    """Versions come to the worker and go, labels move, workers die: what a job named when it was sent ran it."""
    rng = random.Random(seed)
    placed = {1, 2}
    driver = Driver(["m@1", "m@2"], versions={f"m@{number}": number for number in range(1, 9)}, seed=seed).serve()
    labels = {"stable": 1}
    name(driver, *sorted(placed), **labels)
    expected: dict[int, str | None] = {}
    ran: dict[int, set[str]] = {}

    def work(most: int) -> None:
        for _ in range(most):
            for run in driver.running():
                for number in [int(str(payload).split()[1]) for payload in payloads(run)]:
                    ran.setdefault(number, set()).add(run.model)
                driver.done(run)

    def replaced(numbers: set[int]) -> None:
        """As a roll does it: what goes has no jobs any more."""
        work(1000)
        models = tuple(f"m@{number}" for number in sorted(numbers))
        driver.feed(told.SlotPlanned(0, models))
        driver.feed(told.RestartAsked(0))
        while driver.state(0) is not SlotState.STARTING:
            driver.die(0)
            driver.pass_time(0.2)
        driver.up(0)

    for _ in range(60):
        match rng.choice(["submit"] * 6 + ["work", "come", "go", "label", "die"]):
            case "submit":
                wanted = rng.choice([None, "stable", *range(1, 9)])
                number = labels.get("stable") if wanted == "stable" else max(placed) if wanted is None else wanted
                expected[len(expected) + 1] = f"m@{number}" if number in placed else None
                driver.submit(version=wanted, rows=rng.choice([1, 1, 3, 40]), timeout_s=9000.0)
            case "work":
                work(rng.randint(1, 3))
            case "come" if more := [number for number in range(1, 9) if number not in placed]:
                new = rng.choice(more)
                replaced(placed | {new})
                placed.add(new)
                name(driver, *sorted(placed), **labels)
            case "go" if len(placed) > 1:
                placed.discard(rng.choice(sorted(placed)))
                name(driver, *sorted(placed), **labels)
                replaced(set(placed))
            case "label":
                labels["stable"] = rng.choice(sorted(placed))
                name(driver, *sorted(placed), **labels)
            case "die" if driver.state(0) is SlotState.READY and not driver.running():
                driver.die(0)
                while driver.state(0) is not SlotState.STARTING:
                    driver.pass_time(0.2)
                driver.up(0)
    work(1000)
    assert len(expected) > 10
    for job, entry in expected.items():
        if entry is None:
            assert driver.fault(job) is Fault.MODEL_NOT_FOUND, job
        else:
            assert ran[job] == {entry}, job
            assert driver.result(job), job

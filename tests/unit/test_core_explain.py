"""What people are told: a job's history, the jobs of late, what each model has and costs."""

import json

import pytest

from pool.core import events as told
from pool.core.history import MOST_DONE, MOST_FAILED, MOST_LISTED
from pool.core.jobs import MOST_NOTES
from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault
from simulation.driver import BatchDone, Driver, Succeeded


def explained(driver: Driver, about: int) -> dict[str, object]:
    history = driver.machine.explain(str(about))
    assert history is not None
    assert json.loads(json.dumps(history)) == history, "plain values"
    return history


def listed(driver: Driver) -> list[int]:
    answer = driver.machine.explain("")
    assert answer is not None
    return [job["job"] for job in answer["jobs"]]


def test_a_job_that_is_done_has_its_whole_way_told() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(job=77, client=b"\0\7", rows=3, priority=5, device="slot:0", timeout_s=9.0, size_bytes=12)
    driver.now += 0.25
    run = driver.running()[0]
    driver.feed(BatchDone(0, 1, run.lane, run.batch, (Succeeded("answer"),), run_s=0.2, fetch_s=0.01))
    history = explained(driver, 1)
    assert (history["job"], history["client"], history["client_job"], history["model"]) == (1, 7, 77, "m")
    assert (history["rows"], history["priority"], history["device"], history["state"]) == (3, 5, "slot:0", "DONE")
    assert (history["timeout_s"], history["bytes"], history["runs"]) == (9.0, 12, 1)
    assert history["history"] == ["0.000 s leased to slot 0 incarnation 1 in batch 1 of 3 rows", "0.250 s DONE"]
    timeline = history["timeline"]
    assert isinstance(timeline, dict)
    assert timeline["run_s"] == 0.2
    assert timeline["fetch_s"] == 0.01
    segments = [timeline[f"{name}_s"] for name in ("queue", "batch_wait", "feed", "run", "fetch")]
    assert sum(segments) == pytest.approx(0.25)


def test_a_job_that_waits_is_told_of_too() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    driver.submit()
    assert [explained(driver, number)["state"] for number in (1, 2)] == ["LEASED", "QUEUED"]
    assert explained(driver, 2)["timeline"] is None
    assert explained(driver, 2)["history"] == []
    assert explained(driver, 2)["rows"] is None


def test_a_job_that_lost_its_worker_and_failed_has_each_step_told() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    driver.die(0, "SIGSEGV")
    driver.pass_time(1.0)
    driver.up(0)
    driver.done(driver.running()[0], told.Failed(Fault.MODEL_FAILED, "boo"))
    history = explained(driver, 1)
    assert (history["state"], history["runs"]) == ("FAILED", 2)
    lines = history["history"]
    assert isinstance(lines, list)
    assert [word in line for word, line in zip(("slot 0", "SIGSEGV", "slot 0", "FAILED"), lines, strict=True)]
    assert "incarnation 2" in lines[2]


@pytest.mark.parametrize("about", ["2", "0", "-1", "1.0", " 1", "x", "²", "9" * 5000])
def test_of_what_is_no_job_nothing_is_told(about: str) -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    assert driver.machine.explain(about) is None


def test_the_jobs_of_late_are_listed_newest_first_answered_or_not() -> None:
    driver = Driver(["m"]).serve()
    for _ in range(4):
        driver.submit()
    driver.done(driver.run_of(1))
    driver.feed(told.JobCancelled(b"client", 3))
    assert listed(driver) == [4, 3, 2, 1]
    driver.submit("unknown")
    assert listed(driver) == [4, 3, 2, 1], "it was never taken in"
    for _ in range(MOST_LISTED + 10):
        driver.submit()
    assert listed(driver) == list(range(MOST_LISTED + 14, 14, -1))


def test_a_failure_outlives_the_successes_that_follow_it_and_the_memory_is_bounded() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    driver.done(driver.running()[0], told.Failed(Fault.MODEL_FAILED, "boo"))
    for _ in range(MOST_DONE + 5):
        driver.submit()
        driver.done(driver.running()[0])
        driver.log.clear()
    assert explained(driver, 1)["state"] == "FAILED"
    assert driver.machine.explain("2") is None, "the oldest success"
    assert explained(driver, 7)["state"] == "DONE"
    for _ in range(MOST_FAILED):
        driver.submit(timeout_s=0.0)
    assert driver.machine.explain("1") is None
    assert explained(driver, 7)["state"] == "DONE"


def test_a_job_that_is_over_keeps_no_tensors_and_no_other_jobs() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=4)}).serve()
    driver.submit(rows=9)
    while driver.running():
        driver.done(driver.running()[0])
    job = driver.machine.history.find(1)
    assert job is not None
    assert (job.payload, job.pieces, job.batch) == (None, None, None)


def test_the_story_of_a_job_in_a_thousand_pieces_is_short() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=2)}).serve()
    driver.submit(rows=400)
    while driver.running():
        driver.done(driver.running()[0])
        driver.log = driver.log[-4:]
    lines = explained(driver, 1)["history"]
    assert isinstance(lines, list)
    assert len(lines) == MOST_NOTES + 2
    assert f"… {200 - MOST_NOTES} more …" in lines
    assert "rows 0 to 1" in lines[0]
    assert "rows 398 to 399" in lines[-2]


def test_each_model_tells_what_it_has_and_costs() -> None:
    driver = Driver(["m", "other"], models={"m": ModelPolicy(max_batch=8)}).serve()
    driver.submit(rows=4)
    driver.now += 0.5
    driver.done(driver.running()[0])
    driver.submit(rows=4, size_bytes=7)
    driver.submit(rows=2, size_bytes=3)
    driver.submit(rows=None, size_bytes=1)
    snapshot = driver.machine.models_snapshot(driver.now)
    assert json.loads(json.dumps(snapshot)) == snapshot, "plain values"
    m, other = snapshot
    assert (m["name"], m["queued_jobs"], m["queued_rows"], m["unanswered_jobs"]) == ("m", 2, 3, 3)
    assert (m["bytes"], m["max_batch"]) == (11, 8)
    assert m["device_s"] >= 0.5
    assert m["costs"] == [
        {
            "signature": "serving_default",
            "sizes": [{"rows": 4, "batches": 1, "median_s": 0.5, "slowest_s": 0.5}],
        }
    ]
    assert (other["name"], other["unanswered_jobs"], other["device_s"], other["costs"]) == ("other", 0, 0.0, [])


def test_a_model_tells_what_was_found_out_about_it() -> None:
    driver = Driver(["m"], models={"m": ModelPolicy(max_batch=8)}).serve()
    driver.submit(rows=8)
    driver.spoil(driver.running()[0], Fault.OUT_OF_MEMORY)
    (m,) = driver.machine.models_snapshot(driver.now)
    assert m["working_sizes"] == [{"signature": "serving_default", "rows": 4}]
    assert m["dependent"] == {}
    differs = (told.RowsChanged("1 row of 4"),)
    driver.done(driver.running()[0], *differs)
    (m,) = driver.machine.models_snapshot(driver.now)
    assert m["dependent"] == {"serving_default": "1 row of 4"}

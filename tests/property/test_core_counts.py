"""Whenever jobs come and end, each result is in the histograms of its version, in the bucket of its time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.core.policy import ModelPolicy
from pool.wire.faults import Fault
from pool.wire.records import Histogram
from pool.wire.timeline import Timeline
from simulation.driver import AnswerJob, BatchDone, Driver, JobDone, Succeeded, payloads
from support import told_pool

WAITS = st.one_of(st.sampled_from((0.0, 1e-6, 2e-6, 0.001024, 2.0)), st.floats(0, 20, allow_subnormal=False))


def check(found: Histogram, seconds: list[float]) -> None:
    """Of the bucket with an upper end of 2^n µs, for each n: what is at most that, and all others above."""
    assert sum(found.counts) == len(seconds)
    assert found.sum == pytest.approx(sum(seconds))
    for power in range(len(found.counts)):
        end = 2**power / 1e6
        # Nobody tells two times apart that differ by a billionth of themselves.
        surely, perhaps = (sum(each <= end * share for each in seconds) for share in (1 - 1e-8, 1 + 1e-8))
        assert surely <= sum(found.counts[: power + 1]) <= perhaps, (power, seconds)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(WAITS, st.lists(WAITS, min_size=1, max_size=5), WAITS, st.booleans()), max_size=12))
def test_each_result_is_in_the_bucket_of_its_time(turns: list[tuple[float, list[float], float, bool]]) -> None:
    """Each turn: a pause, jobs that come one after the other, and how long each run then takes."""
    policy = ModelPolicy(max_batch=3, batch_wait_s=0.5)
    driver = Driver(["m"], models={"m": policy}, versions={"m": 7}).serve()
    told: list[Timeline] = []
    totals: list[float] = []
    batches: list[int] = []
    arrived: dict[int, float] = {}
    failed = 0
    for pause, gaps, run_s, fails in turns:
        driver.pass_time(pause)
        for gap in gaps:
            driver.pass_time(gap)
            driver.submit("m", rows=1, timeout_s=1000.0)
        driver.pass_time(0.5)
        for job in driver.machine.backlog.jobs.values():
            arrived[job.number] = job.arrived
        while running := driver.running():
            run = running[0]
            driver.pass_time(run_s)
            batches.append(len(run.parts))
            if fails and len(run.parts) == 1:
                failed += 1
                driver.spoil(run, Fault.MODEL_FAILED)
                continue
            outcomes = tuple(Succeeded(payload) for payload in payloads(run))
            done = driver.feed(BatchDone(run.slot, run.incarnation, run.lane, run.batch, outcomes, run_s=run_s / 2))
            for answer in done:
                if isinstance(answer, AnswerJob):
                    assert isinstance(answer.outcome, JobDone)
                    told.append(answer.outcome.timeline)
                    totals.append(driver.now - arrived[answer.job])
    (model,) = told_pool.metrics(driver).models
    if not told and not failed:
        assert model.versions == ()
        return
    (counts,) = model.versions
    assert counts.version == 7
    assert counts.jobs == {"done": len(told)} | ({"model-failed": failed} if failed else {})
    check(counts.total, totals)
    check(counts.queue, [each.queue_s for each in told])
    check(counts.batch_wait, [each.batch_wait_s for each in told])
    check(counts.run, [each.run_s for each in told])
    assert sum(counts.batch_rows.counts) == len(batches)
    assert counts.batch_rows.sum == sum(batches)
    for power, count in enumerate(counts.batch_rows.counts):
        assert count == sum(2**power / 2 < rows <= 2**power for rows in batches)

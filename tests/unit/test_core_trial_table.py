"""The table of trials has a rule for each cause, and words for each verdict."""

import pytest

from pool.core import events as told
from pool.core.trial.table import TABLE, VERDICTS, Cause, Next, Rule
from pool.wire.faults import Fault
from simulation.driver import Driver


def test_each_cause_has_a_rule() -> None:
    assert list(TABLE) == list(Cause)


@pytest.mark.parametrize("cause", Cause)
def test_a_verdict_of_the_table_has_words(cause: Cause) -> None:
    rule = TABLE[cause]
    assert (rule.verdict is not None) == (cause in VERDICTS)
    assert rule.stateful in (None, Fault.STATEFUL_WORKER_LOST)


@pytest.mark.parametrize("cause", Cause)
def test_what_may_have_run_is_marked_wherever_it_would_run_again(cause: Cause) -> None:
    """Two causes alone send a job on though its model may keep state: it never left the pool, or pools held it."""
    rule: Rule = TABLE[cause]
    runs_on = rule.next in (Next.FIRST, Next.ALONE, Next.IN_TURN)
    assert (runs_on and rule.stateful is None) == (cause in (Cause.UNSENT, Cause.POOLS_DIED))


def test_a_job_that_gives_other_rows_by_itself_again_has_failed() -> None:
    """Once it may be that its signature is none for batches; then it would run until its deadline."""
    driver = Driver(["m"]).serve()
    driver.submit(rows=4)
    driver.done(driver.running()[0], told.RowsChanged("other rows"))
    driver.done(driver.running()[0], told.RowsChanged("other rows"))
    assert driver.running() == []
    assert driver.fault(1) is Fault.MODEL_FAILED

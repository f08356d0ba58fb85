"""Jobs that came in one message are jobs like any others as soon as their rows may not run together any more."""

from collections.abc import Sequence
from dataclasses import replace

from simulation.driver import Driver, RunBatch, every, one
from simulation.plans import model_info

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.core.independence import ENOUGH
from pool.core.policy import ModelPolicy
from pool.wire.independence import Batching, RowsCompared, Trial
from pool.wire.signatures import DEFAULT_SIGNATURE, ModelInfo


class Proven(Driver):
    """Its model's rows are proven independent, of the files that its worker has."""

    def __init__(self) -> None:
        super().__init__(["m"], models={"m": ModelPolicy(max_batch=8, batching=Batching.AUTO)})
        self.serve()
        for _ in range(ENOUGH):
            self.compared("")

    def infos(self, models: Sequence[str]) -> tuple[ModelInfo, ...]:
        trials = {DEFAULT_SIGNATURE: Trial(outputs=("y",))}
        return tuple(replace(model_info(name), identity="files", trials=trials) for name in models)

    def compared(self, differs: str) -> list[do.Action]:
        found = RowsCompared("m", "files", DEFAULT_SIGNATURE, ("y",), differs, True)
        return self.feed(told.WorkerCompared(0, self.incarnation(0), found))

    def run_each_alone(self, rows: Sequence[int]) -> None:
        """All that is left are runs of one job each, of so many rows."""
        for count in rows:
            (run,) = self.running()
            (part,) = run.parts
            assert (part.stop - part.start, run.by_rows) == (count, False)
            self.done(run)
        assert not self.running()


def test_an_answer_that_comes_after_the_difference_is_none_and_each_job_runs_alone() -> None:
    driver = Proven()
    run = one(driver.submit(members=(1, 2, 1)), RunBatch)
    assert run.by_rows
    driver.compared("output 'y' gave 1 for a row that gave 2")
    driver.done(run)
    assert not driver.answers()
    driver.run_each_alone((1, 2, 1))
    assert len(driver.answers()) == 3


def test_jobs_that_never_reached_their_worker_do_not_run_together_after_the_difference() -> None:
    driver = Proven()
    run = one(driver.submit(members=(1, 2, 1)), RunBatch)
    driver.compared("output 'y' gave 1 for a row that gave 2")
    driver.feed(told.BatchUnsent(run.slot, run.incarnation, run.batch))
    driver.die(0)
    while driver.state(0) is not SlotState.STARTING:
        driver.pass_time(0.1)
    driver.up(0)
    driver.run_each_alone((1, 2, 1))
    assert len(driver.answers()) == 3


def test_the_answers_of_all_of_them_are_counted() -> None:
    driver = Proven()
    driver.done(one(driver.submit(members=(1, 2, 1)), RunBatch))
    (notice,) = every(driver.compared("output 'y' gave 1 for a row that gave 2"), do.Notice)
    assert notice.text.endswith("; 3 answers of joined rows had been given")

"""When rows may be joined: what the pool makes of what its workers find out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.policy import ModelPolicy
from pool.core.queue.independence import ENOUGH, ENOUGH_UNTRIED, MOST_SETS, Independence
from pool.wire.codec import MAX_HEADER_BYTES, pack
from pool.wire.independence import Batching, Judgement, RowsCompared, Trial
from pool.wire.signatures import DEFAULT_SIGNATURE, ModelInfo
from pool.wire.worker_messages import TensorFlowSettings, Welcome
from simulation.driver import Did, Driver, every
from simulation.plans import model_info

S = DEFAULT_SIGNATURE
WELCOME = Welcome(2, 0, 1.0, TensorFlowSettings(True, 0.0, True, False, 0, 0, {}, False), ())
AGREED = Trial(outputs=("y", "z"))


def of(identity: str = "files", batching: Batching = Batching.AUTO) -> Independence:
    made = Independence(batching)
    made.serving = frozenset({identity})
    return made


def agree(rows: Independence, jobs: int, outputs: Sequence[str] = ("y",), *, distinct: bool = True) -> None:
    for _ in range(jobs):
        rows.compared("files", S, outputs, "", distinct)


def test_nothing_is_joined_before_enough_jobs_agreed() -> None:
    rows = of()
    rows.tried("files", S, AGREED)
    agree(rows, ENOUGH - 1)
    assert not rows.joins(S, ("y",))
    assert rows.compared("files", S, ("y",), "", True) == ("files", S, ("y",), Judgement.PROVEN)
    assert rows.joins(S, ("y",))
    assert rows.compared("files", S, ("y",), "", True) is None, "that is no news any more"


def test_where_nothing_was_tried_more_jobs_are_needed_and_their_rows_must_differ() -> None:
    rows = of()
    rows.tried("files", S, Trial(untried="no JPEG"))
    agree(rows, 10 * ENOUGH_UNTRIED, distinct=False)
    assert not rows.joins(S, ("y",)), "the same row again and again shows nothing"
    agree(rows, ENOUGH_UNTRIED - 1)
    assert not rows.joins(S, ("y",))
    agree(rows, 1)
    assert rows.joins(S, ("y",))


def test_rows_that_are_all_the_same_count_where_made_up_ones_agreed() -> None:
    rows = of()
    rows.tried("files", S, AGREED)
    agree(rows, ENOUGH, distinct=False)
    assert rows.joins(S, ("y",))


def test_an_output_is_proven_by_jobs_that_asked_for_it() -> None:
    rows = of()
    rows.tried("files", S, AGREED)
    agree(rows, ENOUGH, ("y",))
    assert rows.joins(S, ("y",))
    assert not rows.joins(S, ("z",))
    assert not rows.joins(S, ("y", "z"))
    agree(rows, ENOUGH, ("z", "y"))
    assert rows.joins(S, ("z",))
    assert rows.joins(S, ("y", "z"))


def test_an_output_that_was_not_tried_needs_more_jobs() -> None:
    rows = of()
    rows.tried("files", S, Trial(outputs=("y",)))
    agree(rows, ENOUGH_UNTRIED - 1, ("y", "w"))
    assert rows.joins(S, ("y",))
    assert not rows.joins(S, ("y", "w"))


def test_the_sets_of_outputs_that_callers_choose_are_bounded() -> None:
    rows = of()
    for number in range(MOST_SETS):
        agree(rows, 1, (f"y{number}",))
    agree(rows, 2 * ENOUGH_UNTRIED, ("more",))
    assert not rows.joins(S, ("more",))


@pytest.mark.parametrize("jobs", [0, ENOUGH])
def test_one_difference_ends_it_for_all_outputs_and_for_good(jobs: int) -> None:
    rows = of()
    rows.tried("files", S, AGREED)
    agree(rows, jobs)
    assert rows.compared("files", S, ("y",), "apart", True) == ("files", S, (), Judgement.DEPENDENT)
    agree(rows, 10 * ENOUGH_UNTRIED, ("y", "z"))
    assert not rows.joins(S, ("y",))
    assert not rows.joins(S, ("z",))
    assert rows.refuted(S) == "apart"
    assert rows.compared("files", S, ("y",), "again", True) is None, "that is no news any more"


def test_a_difference_at_warm_up_ends_it_too() -> None:
    rows = of()
    assert rows.tried("files", S, Trial(differs="apart")) == ("files", S, (), Judgement.DEPENDENT)
    agree(rows, ENOUGH_UNTRIED)
    assert not rows.joins(S, ("y",))


def test_other_files_have_to_prove_themselves() -> None:
    rows = of()
    rows.tried("files", S, AGREED)
    agree(rows, ENOUGH)
    rows.serving = frozenset({"other files"})
    assert not rows.joins(S, ("y",))
    rows.serving = frozenset({"files", "other files"})
    assert not rows.joins(S, ("y",)), "a batch may come to either"
    rows.serving = frozenset({"files"})
    assert rows.joins(S, ("y",)), "what was known of these is known still"


def test_former_files_are_forgotten_at_last() -> None:
    rows = of()
    rows.tried("files", S, AGREED)
    agree(rows, ENOUGH)
    for number in range(100):
        rows.serving = frozenset({f"later {number}"})
        rows.compared(f"later {number}", S, ("y",), "", True)
    assert len(list(rows.judged())) <= 10
    rows.serving = frozenset({"files"})
    assert not rows.joins(S, ("y",))


def test_who_vouches_is_believed_until_rows_are_missing() -> None:
    rows = of(batching=Batching.ALWAYS)
    assert rows.joins(S, ("y",))
    rows.compared("files", S, ("y",), "apart", True)
    assert rows.joins(S, ("y",))
    assert rows.misshapen(S, "3 rows of 5")
    assert not rows.misshapen(S, "3 rows of 5")
    assert not rows.joins(S, ("y",))
    assert rows.refuted(S) == "3 rows of 5"


def test_never_is_never() -> None:
    rows = of(batching=Batching.OFF)
    rows.tried("files", S, AGREED)
    agree(rows, ENOUGH_UNTRIED)
    assert not rows.joins(S, ("y",))


def test_a_new_worker_is_told_what_is_known() -> None:
    rows = of()
    rows.tried("files", S, AGREED)
    agree(rows, ENOUGH)
    rows.compared("files", "other", ("y",), "apart", True)
    assert set(rows.judged()) == {
        ("files", S, ("y", "z"), Judgement.TRIED),
        ("files", S, ("y",), Judgement.PROVEN),
        ("files", "other", (), Judgement.DEPENDENT),
    }


def test_people_are_told_why() -> None:
    rows = of()
    assert rows.told(S, ("y",)).startswith(f"job by job, until {ENOUGH_UNTRIED} jobs")
    rows.tried("files", S, AGREED)
    agree(rows, 3)
    assert rows.told(S, ("y",)).startswith(f"job by job, until {ENOUGH} jobs")
    assert "(3 did)" in rows.told(S, ("y",))
    agree(rows, ENOUGH)
    assert rows.told(S, ("y",)).startswith("in batches")
    rows.answered(S, 7)
    rows.compared("files", S, ("y",), "apart", True)
    assert rows.told(S, ("y",)).endswith("depend on each other: apart; 7 answers of joined rows were already sent")


# --- in the core ------------------------------------------------------------------------------------------------------


class Proving(Driver):
    """Its workers have files, and warm-ups that agreed."""

    files = "files"

    def infos(self, models: Sequence[str]) -> tuple[ModelInfo, ...]:
        trials = {S: Trial(outputs=("y",))}
        return tuple(replace(model_info(name), identity=self.files, trials=trials) for name in models)

    def compared(self, differs: str = "", *, identity: str = "files", slot: int = 0) -> list[Did]:
        compared = RowsCompared("m", identity, S, ("y",), differs, True)
        return self.feed(told.WorkerCompared(slot, self.incarnation(slot), compared))

    def prove(self) -> None:
        for _ in range(ENOUGH):
            self.compared()


def proving(slots: int = 1, **policy: Any) -> Proving:
    made = Proving(*[["m"]] * slots, models={"m": ModelPolicy(max_batch=4, batching=Batching.AUTO, **policy)})
    made.serve()
    return made


def test_jobs_run_alone_and_whole_until_their_rows_are_proven_independent() -> None:
    driver = proving()
    driver.submit(rows=1)
    for _ in range(3):
        driver.submit(rows=1)
    driver.submit(rows=9)
    for _ in range(5):
        (run,) = driver.running()
        assert len(run.parts) == 1
        assert not run.by_rows
        driver.done(run)
    assert (run.parts[0].start, run.parts[0].stop, run.pad_to) == (0, 9, 9), "it was not cut"
    driver.prove()
    driver.submit(rows=1)
    for _ in range(3):
        driver.submit(rows=1)
    driver.done(driver.running()[0])
    (run,) = driver.running()
    assert len(run.parts) == 3
    assert run.by_rows


def test_nothing_is_padded_before() -> None:
    driver = proving(allowed_batch_sizes=(2, 4))
    driver.submit(rows=1)
    assert driver.running()[0].pad_to == 1
    driver.done(driver.running()[0])
    driver.prove()
    driver.submit(rows=1)
    assert driver.running()[0].pad_to == 2


def test_answers_of_joined_rows_that_are_out_are_not_given_when_a_sample_differs() -> None:
    driver = proving()
    driver.prove()
    for _ in range(4):
        driver.submit(rows=1)
    driver.done(driver.running()[0])
    (shared,) = driver.running()
    assert len(shared.parts) == 3, "the race is met"
    notices = every(driver.compared("output 'y' gave 1 for a row that gave 2"), do.Notice)
    assert "output 'y' gave 1 for a row that gave 2" in notices[0].text
    driver.done(shared)
    assert driver.answers().keys() == {1}
    for number in (2, 3, 4):
        (run,) = driver.running()
        assert len(run.parts) == 1
        driver.done(run)
        assert len(driver.answers()) == number


def test_all_workers_with_these_files_are_told_and_those_that_come() -> None:
    driver = proving(2)
    for _ in range(ENOUGH - 1):
        assert not every(driver.compared(), do.JudgeRows)
    judged = every(driver.compared(), do.JudgeRows)
    assert {(each.slot, each.judged.judgement) for each in judged} == {(0, Judgement.PROVEN), (1, Judgement.PROVEN)}
    assert {each.judged.model for each in judged} == {"m"}
    driver.die(1)
    driver.pass_time(1.0)
    driver.hello(1)
    assert {each.judgement for each in driver.machine.judged(1)} == {Judgement.TRIED, Judgement.PROVEN}
    driver.ready(1)
    assert [each.slot for each in every(driver.log, do.JudgeRows)][2:] == [1]


@pytest.mark.parametrize("letter", ["x", "ß", "\U0001f4a5"])
def test_what_a_worker_is_told_it_can_read_however_long_names_others_have_made_up(letter: str) -> None:
    """It ended with WRONG_ENVIRONMENT at a WELCOME of more than 4 MiB, in each slot, for good."""
    driver = proving(2)
    lies = [f"{number}{letter * ((MAX_HEADER_BYTES - (1 << 16)) // len(letter.encode()))}" for number in range(3)]
    for lie in lies:
        driver.files = lie
        driver.die(0)
        driver.pass_time(10.0)
        driver.up(0)
    driver.files = "honest files"
    driver.die(0)
    driver.pass_time(10.0)
    driver.up(0)
    told = driver.machine.judged(1)
    known = [each[0] for each in driver.machine.backlog.models["m"].independence.judged()]
    assert {*lies} <= {*known}, "nobody lied"
    assert len(pack(replace(WELCOME, judged=told))) <= MAX_HEADER_BYTES
    assert {each.identity for each in told} == {"files", "honest files"}


def test_a_roll_to_other_files_joins_nothing_until_those_are_proven() -> None:
    driver = proving(2)
    driver.prove()
    driver.files = "other files"
    driver.feed(told.RestartAsked(0))
    driver.pass_time(1.0)
    driver.up(0)
    for _ in range(4):
        driver.submit(rows=1)
    assert all(len(run.parts) == 1 for run in driver.running())
    driver.compared(identity="files", slot=1)
    assert all(not model["dependent"] for model in driver.machine.models_snapshot(driver.now))


def test_what_says_nothing_about_what_is_loaded_is_not_heard() -> None:
    driver = proving()
    driver.compared("apart", identity="no such files")
    compared = RowsCompared("m", "files", "no such signature", ("y",), "apart", True)
    driver.feed(told.WorkerCompared(0, driver.incarnation(0), compared))
    driver.feed(
        told.WorkerCompared(0, driver.incarnation(0), replace(compared, signature=S, outputs=("no such output",)))
    )
    driver.feed(told.WorkerCompared(0, driver.incarnation(0), replace(compared, model="unknown")))
    driver.feed(told.WorkerCompared(0, driver.incarnation(0) + 1, replace(compared, signature=S)))
    (m,) = driver.machine.models_snapshot(driver.now)
    assert m["dependent"] == {}

"""Of rows that are fed run after run, a sample is one of the runs: comparing it feeds no more rows than may run."""

import pytest

from pool.wire.calls import Table
from pool.wire.codec import pack
from pool.wire.independence import Judgement, RowsCompared, RowsJudged
from pool.wire.worker_messages import ModelSettings, Run
from unit.batch_runs import Model, doubling, floats, frames_of, served
from unit.caches import new_cache
from workers.independence.checks import Checks
from workers.independence.known import Known
from workers.independence.samples import Sampler
from workers.memory import BatchMemory
from workers.runner import Runner
from workers.shared_memory import SharedMemory


def compare(model: Model, rows: int, pad_to: int, microbatch: int) -> list[RowsCompared]:
    """Runs so many rows, then what is sampled of them in other company; gives what is told."""
    known = Known(
        [ModelSettings("m", "stub:m", True, cache=new_cache())],
        [RowsJudged("m", "files", "s", ("y",), Judgement.PROVEN)],
    )
    known.load("m", "files")
    sampler = Sampler(known)
    runner = Runner(served(model), SharedMemory())
    told: list[RowsCompared] = []
    checks = Checks(sampler, runner.run_rows, told.append, known.marks, 0)
    headers, buffers = frames_of({"x": floats(*([n, -n] for n in range(rows)))})
    run = Run(1, "m", None, ("y",), (rows,), pad_to, True, microbatch=microbatch)
    finished = runner.run(run, [pack(Table(tuple(headers))), *buffers], BatchMemory(), sampler)
    assert finished.sample is not None
    model.fed.clear()
    checks.served(finished.sample, microbatch)
    while checks.waits:
        checks.step()
    return told


@pytest.mark.parametrize(("rows", "pad_to"), [(10, 10), (10, 12), (3, 8)])
def test_no_run_of_a_comparison_is_fed_more_than_a_microbatch(rows: int, pad_to: int) -> None:
    model = doubling()
    assert not compare(model, rows, pad_to, microbatch=4)
    assert model.fed
    assert max(len(each["x"]) for each in model.fed) <= 4


def test_rows_of_a_run_that_depend_on_each_other_are_found_out() -> None:
    (told,) = compare(Model(lambda feeds: {"y": feeds["x"] - feeds["x"].mean(0)}), 10, 10, microbatch=4)
    assert "output 'y' gave" in told.differs

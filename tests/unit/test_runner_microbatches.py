"""A batch of more rows than may be fed at once: run after run, and the answers as of one."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pool.wire.faults import Fault
from pool.wire.tensors import Array
from pool.wire.worker_messages import Failed, RowsChanged
from unit.batch_runs import Model, doubling, floats, run, values

TEN = {"x": floats(*([n, -n] for n in range(10)))}


def fed(model: Model) -> list[int]:
    return [len(each["x"]) for each in model.fed]


@pytest.mark.parametrize(
    ("pad_to", "microbatch", "runs"),
    [(0, 4, [4, 4, 2]), (12, 4, [4, 4, 4]), (0, 5, [5, 5]), (0, 10, [10]), (0, 0, [10])],
)
def test_no_run_is_fed_more_than_a_microbatch(pad_to: int, microbatch: int, runs: list[int]) -> None:
    model = doubling()
    assert values(run(model, TEN, pad_to=pad_to, microbatch=microbatch)) == [(2 * TEN["x"]).tolist()]
    assert fed(model) == runs


def test_parts_are_joined_across_runs() -> None:
    model = doubling()
    parts = [{"x": TEN["x"][:3]}, {"x": TEN["x"][3:7]}, {"x": TEN["x"][7:]}]
    found = run(model, *parts, microbatch=4)
    assert values(found) == [(2 * part["x"]).tolist() for part in parts]
    assert fed(model) == [4, 4, 2]


def test_an_answer_that_looks_at_what_was_fed_is_its_own() -> None:
    """The rows of the next run would be in it."""
    kept: list[Array] = []

    def same(feeds: Mapping[str, Array]) -> dict[str, Array]:
        kept.append(feeds["x"])
        return {"y": feeds["x"]}

    assert values(run(Model(same), TEN, microbatch=4)) == [TEN["x"].tolist()]
    assert len(kept) == 3


def test_a_run_of_other_rows_is_told_as_that_of_a_batch() -> None:
    def loses(feeds: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": feeds["x"][: min(3, len(feeds["x"]))]}

    said = "model m, signature s: output 'y' came back with 3 rows where 4 were fed"
    assert run(Model(loses), TEN, microbatch=4) == [RowsChanged(said)]


def test_runs_whose_answers_do_not_fit_together_fail() -> None:
    """As those of one batch would, whose rows are as wide as the widest of them."""

    def widest(feeds: Mapping[str, Array]) -> dict[str, Any]:
        return {"y": np.zeros((len(feeds["x"]), int(feeds["x"].max()) + 1), np.float32)}

    said = "output 'y' came back with rows of [4] for some rows and [8] for others"
    assert run(Model(widest), TEN, microbatch=4) == [Failed(Fault.MODEL_FAILED, said)]


def test_a_run_that_fails_fails_them_all() -> None:
    def fails(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if feeds["x"].max() > 5:
            raise MemoryError("no more")
        return {"y": feeds["x"]}

    model = Model(fails)
    assert run(model, TEN, microbatch=4) == [Failed(Fault.OUT_OF_MEMORY, "in the worker: no more")]
    assert fed(model) == [4, 4]

"""What is tried of a model when it warms up."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool.wire.signatures import ModelInfo, Signature, TensorSpec
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings
from workers.backend import ProcessUnusable
from workers.independence.known import Known
from workers.independence.warm_up import trials_of
from workers.made_up import made_up_rows
from workers.trial_marks import ENOUGH

X = TensorSpec("float32", (-1,))
INFO = ModelInfo("m", "stub:m", {name: Signature({"x": X}, {"y": X}) for name in ("s", "t")}, False, identity="files")


class FakeModel:
    """`run` raises what it is told to, for each signature once it is fed."""

    def __init__(self, error: BaseException | None = None, values: Any = None) -> None:
        self.error = error
        self.values = values
        self.ran: list[str] = []

    def run(self, signature: str, feeds: Mapping[str, Array], _outputs: Sequence[str]) -> dict[str, Array]:
        self.ran.append(signature)
        if self.error is not None:
            raise self.error
        return {"y": feeds["x"] * 2}

    def to_try(self, signature: str, rows: int) -> Iterator[Mapping[str, Array]]:
        return made_up_rows(INFO.signatures[signature], rows) if self.values is None else self.values


def trials(model: FakeModel, cache: Path | None) -> Any:
    settings = ModelSettings("m", "stub:m", True, batch_sizes=(1, 4), cache=str(cache / "converted") if cache else "")
    known = Known([settings])
    known.load("m", "files")
    return trials_of(model, INFO, known)  # type: ignore[arg-type]


def broken() -> Iterator[Mapping[str, Array]]:
    raise RuntimeError("nobody thought of this")
    yield {}


@pytest.mark.parametrize("model", [FakeModel(RuntimeError("nobody thought of this")), FakeModel(values=broken())])
def test_a_fault_of_ours_is_no_reason_not_to_serve(model: FakeModel, tmp_path: Path) -> None:
    found = trials(model, tmp_path)["s"]
    assert found.untried == "in the worker: RuntimeError: nobody thought of this"
    assert not found.outputs


def test_a_model_is_not_tried_again_once_enough_workers_died_of_any_of_its_signatures(tmp_path: Path) -> None:
    for _ in range(ENOUGH):
        model = FakeModel(ProcessUnusable("it broke"))
        with pytest.raises(ProcessUnusable):
            trials(model, tmp_path)
        assert model.ran == ["s"]
    model = FakeModel()
    found = trials(model, tmp_path)
    assert not model.ran
    assert {each.untried for each in found.values()} == {
        f"{ENOUGH} workers died while they tried it; the next try is in a day"
    }
    assert found.keys() == {"s", "t"}


def test_nothing_is_tried_where_it_would_be_tried_again_for_ever() -> None:
    model = FakeModel(ProcessUnusable("it broke"))
    found = trials(model, None)
    assert not model.ran
    assert "no state folder" in found["s"].untried


def test_of_large_rows_a_few_are_made_up_and_repeated() -> None:
    large = Signature({"x": TensorSpec("float32", (-1, 1 << 20))}, {})
    for feeds in made_up_rows(large, 8):
        x = feeds["x"]
        assert x.shape == (8, 1 << 20)
        assert len(np.unique(x[:, 0])) == 2
        np.testing.assert_array_equal(x[-1], x[0])
    for feeds in made_up_rows(Signature({"x": TensorSpec("float32", (-1, 4))}, {}), 32):
        assert len(np.unique(feeds["x"][:, 0])) == 31  # the last one is as the first

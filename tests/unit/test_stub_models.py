"""The stub models that other tests stand on do what they say."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pool.wire.faults import Fault
from pool.wire.signatures import Refused
from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad, ProcessUnusable
from workers.stub.backend import StubBackend
from workers.stub.model import StubModel


def load(path: str, backend: StubBackend | None = None) -> StubModel:
    return (backend or StubBackend()).load(ModelSettings("m", path, True))


def x(*values: float) -> dict[str, np.ndarray]:
    return {"x": np.array(values, np.float32)}


def test_every_signature_of_rows_may_be_batched() -> None:
    info = load("stub:rows").info
    assert set(info.signatures) == {"double", "sleep", "fail", "kill", "oom", "unusable", "shrink", "text", "view"}
    assert all(info.has_rows(name, None) for name in info.signatures)


def test_no_signature_of_the_others_is_batched() -> None:
    for path in ("stub:echo", "stub:faults", "stub:counter"):
        info = load(path).info
        assert not any(info.has_rows(name, None) for name in info.signatures)


def test_a_negative_row_is_the_guilty_one() -> None:
    model = load("stub:rows?fits=3")
    with pytest.raises(Refused) as caught:
        model.run("fail", x(1, -1), ["y"])
    assert caught.value.fault is Fault.MODEL_FAILED
    for rows in ((1, -1), (1, 2, 3, 4)):
        with pytest.raises(Refused) as caught:
            model.run("oom", x(*rows), ["y"])
        assert caught.value.fault is Fault.OUT_OF_MEMORY
    with pytest.raises(ProcessUnusable):
        model.run("unusable", x(-1), ["y"])
    for name in ("fail", "oom", "unusable", "kill"):
        assert model.run(name, x(1, 2, 3), ["y"])["y"].tolist() == [1, 2, 3]


def test_text_has_rows() -> None:
    fed = {"x": np.array([b"ab", b""], object)}
    answer = load("stub:rows").run("text", fed, ["upper", "length"])
    assert {name: array.tolist() for name, array in answer.items()} == {"upper": [b"AB", b""], "length": [2, 0]}


def test_the_lanes_and_models_of_a_worker_share_one_device() -> None:
    backend = StubBackend()
    models = [load("stub:rows?run_ms=30&row_ms=10", backend) for _ in range(2)]
    lanes = [threading.Thread(target=model.run, args=("double", x(1, 2), ["y"])) for model in models]
    began = time.monotonic()
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    assert time.monotonic() - began >= 2 * 0.05


def test_a_counter_writes_down_what_it_ran(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    for _ in range(2):  # workers, one after the other
        model = load(f"stub:counter?{ledger}")
        totals = [int(model.run("add", {"n": np.array(n)}, ["total"])["total"]) for n in (3, 4)]
        assert totals == [3, 7]
    assert ledger.read_text().split() == ["3", "4", "3", "4"]


@pytest.mark.parametrize("kind", ["counter", "tally"])
def test_a_counter_may_take_its_time_between_its_line_and_its_answer(tmp_path: Path, kind: str) -> None:
    ledger = tmp_path / "ledger"
    model = load(f"stub:{kind}?{ledger}&run_ms=30")
    began = time.monotonic()
    assert model.run("add", {"n": np.array(3)}, ["total"])["total"] == 3
    assert time.monotonic() - began >= 0.03
    assert ledger.read_text().split() == ["3"]
    with pytest.raises(CannotLoad, match="rum_ms=3 is not one of the numbers"):
        load(f"stub:{kind}?{ledger}&rum_ms=3")


@pytest.mark.parametrize("query", ["fits=x", "fits", "fist=3", "run_ms=-1", "run_ms=nan"])
def test_an_option_that_is_none_is_refused(query: str) -> None:
    name = query.partition("=")[0]
    with pytest.raises(
        CannotLoad, match=f"model m: stub:rows.*: {name}=.* is not one of the numbers fits, run_ms, row_ms"
    ):
        load(f"stub:rows?{query}")

"""`scatter` and `broadcast` against a pool that the test plays."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.wire import client_messages as wire
from pool.wire.faults import Fault
from simulation.driver import Driver
from support import told_pool
from support.asked import Asked
from support.fake_pool import Serve, Serving

(M,) = told_pool.models(Driver(["m"]))
MODELS = [
    replace(M, name=name, model=name, ready_slots=ready).to_dict()
    for name, ready in (("other", (0,)), ("m", (1, 4, 7)), ("loading", ()))
]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[[Serve], tuple[Serving, Client]]]:
    made: list[Any] = []

    def make(serve: Serve) -> tuple[Serving, Client]:
        pool = Serving(tmp_path, serve, {"models": MODELS})
        client = Client(pool.endpoint)
        made.extend((client, pool))
        return pool, client

    yield make
    for each in made:
        each.close()


def doubled(_: Asked, inputs: dict[str, Any]) -> dict[str, Any]:
    return {"y": inputs["x"] * 2}


def mean_rows(_: Asked, inputs: dict[str, Any]) -> dict[str, Any]:
    return {"y": inputs["x"].mean(axis=0), "n": np.float32(len(inputs["x"]))}


WHOLE = np.arange(20, dtype=np.float32).reshape(10, 2)


def test_a_piece_for_each_replica_in_the_order_of_the_input(serving: Any) -> None:
    pool, client = serving(doubled)
    answers = client.scatter("m", {"x": WHOLE}, priority=3, signature="s", outputs=["y"], timeout=5.0)
    assert [len(answer["y"]) for answer in answers] == [4, 3, 3]
    np.testing.assert_array_equal(np.concatenate([answer["y"] for answer in answers]), WHOLE * 2)
    for submit in pool.submitted:
        assert (submit.signature, submit.outputs, submit.priority, submit.device) == ("s", ("y",), 3, None)


def test_concat_is_the_whole_answer(serving: Any) -> None:
    _, client = serving(doubled)
    np.testing.assert_array_equal(client.scatter("m", {"x": WHOLE}, reduce="concat")["y"], WHOLE * 2)


def test_sum_and_mean(serving: Any) -> None:
    _, client = serving(mean_rows)
    assert client.scatter("m", {"x": WHOLE}, reduce="sum", outputs=["n"])["n"] == 10
    np.testing.assert_allclose(client.scatter("m", {"x": WHOLE}, reduce="mean")["y"], WHOLE.mean(axis=0), rtol=1e-6)


@pytest.mark.parametrize(("pieces", "sizes"), [(1, [10]), (4, [3, 3, 2, 2]), (99, [1] * 10)])
def test_as_many_pieces_as_asked_for(serving: Any, pieces: int, sizes: list[int]) -> None:
    pool, client = serving(doubled)
    answers = client.scatter("m", {"x": WHOLE}, pieces=pieces)
    assert [len(answer["y"]) for answer in answers] == sizes
    assert not pool.asked


def test_a_model_that_is_still_loading_is_one_piece(serving: Any) -> None:
    _, client = serving(doubled)
    assert len(client.scatter("loading", {"x": WHOLE})) == 1


def test_python_numbers_stay_weak_when_they_are_cut(serving: Any) -> None:
    tables: list[bytes] = []

    def serve(submit: Asked, inputs: dict[str, Any]) -> dict[str, Any]:
        tables.append(bytes(pool.payload[0]))  # now: a PING has none, and may come next
        return doubled(submit, inputs)

    pool, client = serving(serve)
    client.scatter("m", {"x": [1, 2, 3]})
    for table in tables:
        assert b"int64" in table
        assert table.endswith(b"\xc3")  # msgpack's True: `weak` is the header's last field
    assert len(tables) == 3


def test_strings_are_cut_and_joined(serving: Any) -> None:
    _, client = serving(lambda _, inputs: {"y": inputs["x"]})
    texts = [b"a", b"", b"bc\0", b"d", b"e"]
    assert client.scatter("m", {"x": texts}, reduce="concat")["y"].tolist() == texts


def test_one_that_fails_cancels_the_others(serving: Any) -> None:
    def serve(submit: Asked, inputs: dict[str, Any]) -> wire.Failure | None:
        if 8.0 in inputs["x"]:  # the second piece's
            return wire.Failure(submit.job, Fault.MODEL_FAILED, "as told", None)
        return None

    pool, client = serving(serve)
    with pytest.raises(errors.ModelFailed, match="as told"):
        client.scatter("m", {"x": WHOLE}, reduce="sum", timeout=30.0)
    client.models()  # the pool has heard all that was said before
    failed, *others = sorted(pool.submitted, key=lambda submit: submit.job != pool.submitted[1].job)
    assert sorted(pool.cancelled) == sorted(submit.job for submit in others)
    assert failed.job not in pool.cancelled


def test_a_full_pool_is_waited_for(serving: Any) -> None:
    refused: set[int] = set()

    def serve(submit: Asked, inputs: dict[str, Any]) -> Any:
        if submit.job not in refused:
            refused.add(submit.job)
            return wire.Failure(submit.job, Fault.OVERLOADED, "full", 0.005)
        return doubled(submit, inputs)

    _, client = serving(serve)
    np.testing.assert_array_equal(client.scatter("m", {"x": WHOLE}, reduce="concat")["y"], WHOLE * 2)


@pytest.mark.parametrize(
    ("inputs", "options", "complaint"),
    [
        (1.0, {}, "model m: scatter cuts along axis 0, so all inputs must have the same size there"),
        ({"x": WHOLE, "z": WHOLE[1:]}, {}, "scatter cuts along axis 0"),
        (WHOLE[:0], {}, "scatter cuts along axis 0"),
        (WHOLE, {"reduce": "max"}, 'reduce is \'max\'; give None, "concat", "sum" or "mean"'),
        (WHOLE, {"pieces": 0}, "pieces is 0; give a positive integer"),
        (WHOLE, {"pieces": True}, "pieces is True"),
        (WHOLE, {"priority": 1000}, "priority is 1000"),
    ],
)
def test_what_cannot_be_scattered(serving: Any, inputs: Any, options: dict[str, Any], complaint: str) -> None:
    _, client = serving(doubled)
    with pytest.raises(errors.InvalidInput, match=complaint):
        client.scatter("m", inputs, **options)


def test_what_cannot_be_combined_says_so(serving: Any) -> None:
    _, client = serving(lambda _, inputs: {"n": np.int64(len(inputs["x"])), "y": inputs["x"]})
    with pytest.raises(errors.InvalidInput, match="\"concat\" cannot join its answers: output 'n' has no axis 0"):
        client.scatter("m", {"x": WHOLE}, reduce="concat")
    with pytest.raises(errors.InvalidInput, match=r"output 'y' is float32 \[.*\] of one piece"):
        client.scatter("m", {"x": WHOLE}, reduce="sum")
    with pytest.raises(errors.InvalidInput, match="output 'n' is int64, and its mean would not be int64"):
        client.scatter("m", {"x": WHOLE}, reduce="mean")


def test_an_unknown_model_is_named(serving: Any) -> None:
    _, client = serving(doubled)
    for call in (client.scatter, client.broadcast):
        with pytest.raises(errors.ModelNotFound, match="no model 'n'; there are: other, m, loading"):
            call("n", {"x": WHOLE})


def test_broadcast_runs_on_each_replica(serving: Any) -> None:
    pool, client = serving(lambda submit, inputs: {"y": inputs["x"], "where": np.array(submit.device.encode(), object)})
    answers = client.broadcast("m", {"x": WHOLE}, signature="s", outputs=["y"], priority=1)
    assert list(answers) == [1, 4, 7]
    for slot, answer in answers.items():
        assert answer["where"].item() == f"slot:{slot}".encode()
        np.testing.assert_array_equal(answer["y"], WHOLE)
    assert {(submit.signature, submit.outputs, submit.priority) for submit in pool.submitted} == {("s", ("y",), 1)}


def test_broadcast_without_a_replica(serving: Any) -> None:
    _, client = serving(doubled)
    with pytest.raises(errors.WorkerLost, match="model loading: no worker with this model is READY"):
        client.broadcast("loading", 1.0)


def test_the_last_answers_first(serving: Any) -> None:
    """Answers in the reverse order of the jobs change nothing."""
    held: list[tuple[Asked, dict[str, Any]]] = []
    all_there = threading.Event()

    def serve(submit: Asked, inputs: dict[str, Any]) -> None:
        held.append((submit, inputs))
        if len(held) == 3:
            all_there.set()
            for each, given in reversed(held):
                pool.answer(each.job, doubled(each, given))

    pool, client = serving(serve)
    np.testing.assert_array_equal(client.scatter("m", {"x": WHOLE}, reduce="concat")["y"], WHOLE * 2)
    assert all_there.is_set()

"""`map` over one array: its items leave many at a time, each has its own answer. Against a pool of the test's own."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client.bulk.mapping import STRETCHES, are_rows
from pool.wire import client_messages as wire
from pool.wire.faults import Fault
from support.asked import Asked
from support.fake_pool import TIMELINE, FakePool, Serving
from support.processes import eventually

QUICK = replace(TIMELINE, run_s=1e-6)


def doubled(submit: Asked, inputs: dict[str, Any]) -> dict[str, Any] | wire.Failure:
    if (inputs[""] < 0).any():
        return wire.Failure(submit.job, Fault.MODEL_FAILED, "a row is negative", None)
    return {"y": 2 * inputs[""], "sum": inputs[""].sum(axis=tuple(range(1, inputs[""].ndim)))}


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path, doubled)
    yield serving
    serving.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Client(f"ipc://{tmp_path}/p.sock") as client:
        yield client


def given(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return np.random.default_rng(7).integers(0, 50, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(500, 1), (500, 3), (90, 2, 5), (1, 4, 2, 2)])
def test_each_item_has_its_own_answer_in_its_turn(
    serving: Serving, client: Client, shape: tuple[int, ...], dtype: str
) -> None:
    array = given(shape, dtype)
    if dtype in ("bool", "complex64"):
        serving._serve = lambda _, inputs: {"y": ~inputs[""] if dtype == "bool" else 2 * inputs[""]}
    found = list(client.map("m", array, in_flight=64))
    wanted = ~array if dtype == "bool" else 2 * array
    assert [answer["y"].tolist() for answer in found] == wanted.tolist()
    assert {answer["y"].shape for answer in found} == {shape[1:]}
    if len(found) > 1:
        assert len(serving.submitted) < len(found)


@pytest.mark.usefixtures("serving")
@pytest.mark.parametrize(
    "array",
    [given((300, 4))[:, ::2], given((4, 300)).T, given((600, 2))[::2], given((300, 2))[::-1], given((300, 2), ">f4")],
    ids=["columns", "transposed", "every other", "backwards", "big-endian"],
)
def test_however_it_lies(client: Client, array: Any) -> None:
    found = [answer["y"].tolist() for answer in client.map("m", array)]
    assert found == (2 * array).tolist()


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [
        ([np.zeros((1, 2))], False),
        (np.zeros(5), False),  # each item is a number, and has no rows
        (np.zeros((5, 0)), False),
        (np.zeros((0, 5)), False),
        (np.array([["a", "b"]]), False),
        (np.array([[b"a", None]], dtype=object), False),
        (np.zeros((5, 1)), True),
    ],
)
def test_what_has_rows(inputs: Any, wanted: bool) -> None:
    assert are_rows(inputs) is wanted


@pytest.mark.usefixtures("serving")
def test_what_has_none_goes_the_usual_way(client: Client) -> None:
    assert [float(answer["y"]) for answer in client.map("m", np.arange(5.0))] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert list(client.map("m", np.zeros((0, 3)))) == []


def test_items_that_are_large_travel_alone(serving: Serving, client: Client) -> None:
    array = given((3, 1, 100_000))
    assert [answer["y"].tolist() for answer in client.map("m", array)] == (2 * array).tolist()
    assert [submit.weight for submit in serving.submitted] == [1, 1, 1]


def test_no_more_is_in_flight_than_is_asked_for(fake: FakePool, client: Client) -> None:
    first = client.submit("m", np.zeros(1, np.float32))
    fake.open()
    fake.answer(fake.expect(Asked).job, {"y": np.zeros(1)}, timeline=QUICK)
    first.result(5)
    results = client.map("m", given((1000, 1)), in_flight=40)
    with ThreadPoolExecutor() as readers:
        reader = readers.submit(next, results)
        out = [fake.expect(Asked).weight for _ in range(STRETCHES)]
        fake.nothing_of(Asked, 0.5)
        client.close()
        assert isinstance(reader.exception(5), errors.PoolUnreachable)
    assert out == [10] * STRETCHES


@pytest.mark.usefixtures("serving")
def test_the_first_error_comes_in_its_turn(client: Client) -> None:
    """The pool would run the others of its chunk alone; this one does not, so they fail with it."""
    array = np.zeros((1000, 1), np.float32)
    array[700] = -1
    results = client.map("m", array, in_flight=64)
    found: list[Any] = []
    with pytest.raises(errors.ModelFailed, match="a row is negative"):
        found.extend(results)
    assert 600 < len(found) <= 700


def test_closed_early_it_takes_back_what_is_out(tmp_path: Path, client: Client) -> None:
    stay: list[Asked] = []

    def serve(submit: Asked, inputs: dict[str, Any]) -> dict[str, Any] | wire.Failure | None:
        if inputs[""][0, 0] < 100:
            return doubled(submit, inputs)
        stay.append(submit)
        return None

    held = Serving(tmp_path, serve)
    try:
        results = client.map("m", np.arange(1000, dtype=np.float32)[:, None, None], in_flight=64)
        for _ in range(90):  # those after the hundredth are on their way, and stay there
            next(results)
        eventually(lambda: bool(stay))
        results.close()  # type: ignore[attr-defined]  # a generator
        client.run("m", np.zeros((1, 1)))  # after what was taken back
        assert len(held.submitted) < 200
        assert 0 < len(held.cancelled) <= STRETCHES
        assert set(held.cancelled) <= {submit.job for submit in held.submitted}
    finally:
        held.close()


@pytest.mark.usefixtures("serving")
def test_a_client_that_is_closed_says_so() -> None:
    with Client("ipc:///nowhere/p.sock", connect_timeout=0.1) as client:
        with pytest.raises(errors.PoolUnreachable):
            list(client.map("m", given((10, 1))))
        client.close()
        with pytest.raises(errors.InvalidState, match="closed"):
            list(client.map("m", given((10, 1))))

"""`map` and large inputs: in blocks where rows may be joined, and always what each row alone would have got."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from support.pools import RunningPool

CONFIG = """
[pool]
devices = ["cpu", "cpu"]
[[model]]
name = "joined"
path = "stub:double?log={folder}/joined"
batching = "on"
max_batch = 16
[[model]]
name = "plain"
path = "stub:double?log={folder}/plain"
[[model]]
name = "shrink"
path = "stub:shrink"
batching = "on"
max_batch = 16
"""


@pytest.fixture
def runs(running: RunningPool) -> Iterator[Any]:
    """How many rows each run of a model had, since the test began."""
    for name in ("joined", "plain"):
        Path(running.folder, name).unlink(missing_ok=True)

    def read(model: str) -> list[int]:
        return [len(line.split()) - 1 for line in Path(running.folder, model).read_text().splitlines()]

    return read


def column(count: int) -> Any:
    return np.arange(count, dtype=np.float32)[:, None]


def test_rows_of_arrays_travel_in_blocks_where_they_may_be_joined(client: Client, runs: Any) -> None:
    results = [*client.map("joined", {"x": column(100)})]
    assert [result["y"].tolist() for result in results] == [[[2 * i]] for i in range(100)]
    assert len(runs("joined")) <= 7
    results = [*client.map("plain", {"x": column(40)}, in_flight=5)]
    assert [result["y"].tolist() for result in results] == [[[2 * i]] for i in range(40)]
    assert runs("plain") == [1] * 40


def test_an_iterable_of_inputs_is_read_as_it_is_needed(client: Client) -> None:
    read: list[int] = []

    def inputs() -> Iterator[list[list[int]]]:
        for i in range(1000):
            read.append(i)
            yield [[i]]

    results = client.map("plain", inputs(), in_flight=4)
    assert next(results)["y"].item() == 0
    assert len(read) == 4
    assert [result["y"].item() for result in results] == [2 * i for i in range(1, 1000)]


def test_small_inputs_that_look_alike_are_gathered_and_errors_come_in_their_place(client: Client, runs: Any) -> None:
    inputs = [column(1) + i for i in range(100)] + [column(2)] + [np.ones((1, 1), np.int32)] + [column(1)]
    results = client.map("joined", iter(inputs))
    assert [next(results)["y"].tolist() for _ in range(101)] == [[[2.0 * i]] for i in range(100)] + [[[0], [2]]]
    with pytest.raises(errors.InvalidInput, match="int32"):
        next(results)
    assert max(runs("joined")) == 16, "premise: they were gathered"
    inputs[57] = -column(1) - 1
    results = client.map("joined", inputs[:100])
    assert [next(results)["y"].item() for _ in range(57)] == [2.0 * i for i in range(57)]
    with pytest.raises(errors.ModelFailed):
        next(results)

    def broken() -> Iterator[Any]:
        yield from inputs[:3]
        raise ZeroDivisionError

    results = client.map("joined", broken())
    assert [next(results)["y"].item() for _ in range(3)] == [0, 2, 4]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize("guilty", [0, 17, 99])
def test_a_failed_block_is_halved_down_to_the_guilty_row(client: Client, runs: Any, guilty: int) -> None:
    x = column(100)
    x[guilty] = -1
    results = client.map("joined", {"x": x})
    assert [next(results)["y"].item() for _ in range(guilty)] == [2.0 * i for i in range(guilty)]
    with pytest.raises(errors.ModelFailed, match="does not bear"):
        next(results)
    assert max(runs("joined")) > 1, "premise: rows were joined"


def test_large_inputs_of_run_are_cut_and_joined(client: Client, runs: Any) -> None:
    result = client.run("joined", {"x": column(1000)})
    np.testing.assert_array_equal(result["y"], 2 * column(1000))
    assert sum(runs("joined")) == 1000
    assert max(runs("joined")) <= 16
    assert client.run("plain", {"x": column(1000)})["y"].shape == (1000, 1)
    assert runs("plain") == [1000]


def test_a_call_that_is_cut_has_one_timeout_and_its_error(client: Client) -> None:
    with pytest.raises(errors.DeadlineExceeded):
        client.run("joined", {"x": column(100)}, timeout=0)
    with pytest.raises(errors.ModelFailed):
        client.run("joined", {"x": -column(100)})


@pytest.mark.parametrize("name", ["plain", "shrink"])
def test_rows_that_may_not_be_joined_after_all_go_as_they_came(client: Client, name: str) -> None:
    """A lane answers "Stale" to blocks of `plain`; answers of `shrink` do not fit their rows."""
    record = client.model(name)
    for signature in record["signatures"].values():
        signature |= {"verdicts": {"y": ""}, "max_batch": 16}
    client._connector.planner.learn(name, record)
    rows = [result["y"].tolist() for result in client.map(name, {"x": column(40)})]
    assert rows == ([[]] * 40 if name == "shrink" else [[[2 * i]] for i in range(40)])
    expected = column(40)[1:] if name == "shrink" else 2 * column(40)
    np.testing.assert_array_equal(client.run(name, {"x": column(40)})["y"], expected)


@pytest.mark.parametrize(
    ("inputs", "options"),
    [
        ({"x": column(3), "z": column(3)}, {}),
        ("abc", {}),
        (3, {}),
        ({"x": column(3)}, {"in_flight": 0}),
        ({"x": np.float32(1)}, {}),
        ({"x": column(3)}, {"timeout": -1.0}),
    ],
)
def test_wrong_calls_are_refused_before_anything_is_sent(client: Client, inputs: Any, options: Any) -> None:
    with pytest.raises(errors.InvalidInput):
        client.map("joined", inputs, **options)

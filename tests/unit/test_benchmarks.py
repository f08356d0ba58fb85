"""What the benchmarks reckon with, without anything that is slow or may be missing."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from benchmarks import report
from benchmarks.aims import AIMS, Result
from benchmarks.cases import Array, Case, WrongAnswer, rows_of
from benchmarks.line_process import Ended, LineProcess, python_module
from benchmarks.peers import wrk
from benchmarks.rounds import Spread, in_turn, ratio
from benchmarks.run import Run
from benchmarks.turns import Turns

CASE = Case("double", "stub:rows", "double", "x", "y", "float32", (3,), 4)
ROWS = rows_of(CASE, 8)
SHORT_S = 0.002
LONG_S = 0.05  # in which all rows have their turn


class Answered:
    def __init__(self, answer: Array) -> None:
        self._answer = answer

    def result(self) -> dict[str, Array]:
        return {"y": self._answer}


def doubling(row: Array) -> Array:
    return row * 2


def submit(row: Array) -> Answered:
    return Answered(doubling(row))


def turns() -> Turns:
    return Turns(CASE, ROWS, [doubling(row) for row in ROWS])


def test_ways_take_turns_and_the_first_round_only_warms_up() -> None:
    order = []

    def way(name: str) -> float:
        order.append(name)
        return len(order)

    assert in_turn({"a": lambda: way("a"), "b": lambda: way("b")}, 2) == {"a": [3, 5], "b": [4, 6]}
    assert order == ["a", "b"] * 3


def test_a_ratio_is_of_figures_of_the_same_round() -> None:
    # The machine became ten times slower after the first round: of the medians the ratio would be 0.2.
    assert ratio([200, 20, 24], [100, 10, 10]) == Spread(2.0, 2.0, 2.4)


@pytest.mark.parametrize(("figures", "references"), [([1], [1, 2]), ([], []), ([1], [0])])
def test_a_ratio_that_means_nothing_is_refused(figures: Sequence[float], references: Sequence[float]) -> None:
    with pytest.raises(ValueError, match=r"rounds|0"):
        ratio(figures, references)


@pytest.mark.parametrize(
    ("name", "median", "verdict"),
    [
        ("alone", 2.0, "met"),
        ("alone", 2.01, "missed"),
        ("map_mosec", 4.0, "met"),
        ("map_mosec", 3.99, "missed"),
    ],
)
def test_an_aim_is_met_at_its_bound(name: str, median: float, verdict: str) -> None:
    assert Result(AIMS[name], Spread(median, 0.1, 9.0)).verdict == verdict
    assert Result(AIMS[name], None, "why").verdict == "not measured"


def test_every_way_of_a_turn_gives_a_figure() -> None:
    ours = turns()
    batches = [np.concatenate(ROWS[:4]), np.concatenate(ROWS[4:])]
    assert ours.alone(doubling, SHORT_S) > 0
    assert ours.loop(doubling, SHORT_S) > 0
    assert ours.batches(doubling, batches, SHORT_S) > 0
    assert ours.window(submit, 3, SHORT_S) > 0
    assert ours.groups(lambda rows: [submit(row) for row in rows], 2, SHORT_S) > 0
    assert ours.stream(lambda end: (submit(row).result() for row in ours.until(end)), SHORT_S) > 0


def test_no_way_of_a_turn_counts_wrong_answers() -> None:
    ours = turns()

    def wrong(row: Array) -> Array:
        return doubling(row) + (row == ROWS[5])

    def promised(row: Array) -> Answered:
        return Answered(wrong(row))

    def late(rows: Sequence[Array]) -> list[Answered]:  # right, but each to the row before
        return [submit(rows[number - 1]) for number in range(len(rows))]

    ways: tuple[Callable[[], object], ...] = (
        lambda: ours.loop(wrong, LONG_S),
        lambda: ours.alone(wrong, LONG_S),
        lambda: ours.window(promised, 3, LONG_S),
        lambda: ours.groups(late, 2, LONG_S),
        lambda: ours.batches(lambda batch: batch, [np.concatenate(ROWS)], LONG_S),
    )
    for way in ways:
        with pytest.raises(WrongAnswer, match="double"):
            way()


def test_a_case_travels_in_a_file_and_its_rows_are_the_same_everywhere(tmp_path: Path) -> None:
    assert Case.read(CASE.write(tmp_path)) == CASE
    for mine, theirs in zip(ROWS, rows_of(CASE, 8), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    texts = rows_of(Case("text", "", "", "x", "y", "string", (), 4), 2)
    assert all(isinstance(text[0], bytes) and text.shape == (1,) for text in texts)


def test_what_wrk_says_is_read_and_no_failed_request_is_passed_over() -> None:
    told = 'Running 1s test\n{"requests": 300, "seconds": 1.5, "p50": 0.002, "failed": %d, "answers": ["00ff", ""]}\n'
    assert wrk.read(told % 0) == wrk.WrkRun(200.0, 0.002, (b"\x00\xff", b""))
    with pytest.raises(wrk.WrkFailed, match="3 of 300"):
        wrk.read(told % 3)
    with pytest.raises(wrk.WrkFailed, match="unable to connect"):
        wrk.read("", "unable to connect to 127.0.0.1")


def test_a_process_that_ends_says_why(tmp_path: Path) -> None:
    process = LineProcess(python_module("this_module_is_not_there"), tmp_path / "log")
    try:
        with pytest.raises(Ended, match="this_module_is_not_there"):
            process.answer(30)
    finally:
        process.end()


def test_the_report_has_every_aim_and_every_failure(tmp_path: Path) -> None:
    run = Run(tmp_path, {}, {}, 2, 1.0, lambda _: None)
    samples = run.measure("mlp", "s", {"Session.run": lambda: 0.0004, "client.run": lambda: 0.0002})
    run.conclude("alone", samples, "Session.run")
    run.missing("map_mosec", "wrk is not installed")
    run.failures["mlp, ray"] = "it did not start"
    shown = io.StringIO()
    report.show(run, Console(width=200, file=shown))
    for expected in ("0.5 (0.5–0.5)", "met", "wrk is not installed", "it did not start", "400 µs", "200 µs"):
        assert expected in shown.getvalue()
    told = json.loads(report.as_json(run))
    assert {aim["aim"]: aim["verdict"] for aim in told["aims"] if aim["note"] != "no part of this run"} == {
        "alone": "met",
        "map_mosec": "not measured",
    }


@pytest.mark.parametrize(
    ("figure", "unit", "shown"),
    [(0.0000004, "s", "0.4 µs"), (0.0123, "s", "12.3 ms"), (4.0, "s", "4 s"), (17671.4, "rows/s", "17,671 rows/s")],
)
def test_figures_are_readable(figure: float, unit: str, shown: str) -> None:
    assert report.readable(figure, unit) == shown

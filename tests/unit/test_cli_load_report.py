"""What is printed and drawn of open loops."""

import itertools
import json
import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import click
import pytest

from pool.cli.bench_job import BenchJob
from pool.cli.curve_png import drawer
from pool.cli.curve_text import HEIGHT, drawn
from pool.cli.load_point import LoadPoint
from pool.cli.load_report import LoadReport
from pool.cli.load_table import pace_lines
from pool.cli.measured import Measured
from pool.cli.open_loop import Load
from pool.cli.rates import Steps, one_rate, rate_steps, several_counts, several_rates
from pool.cli.steadiness import Course, Warmup
from pool.errors import PoolError


def point(rate: float, goodput: float, p50_s: float, p99_s: float, **rest: float) -> LoadPoint:
    base = LoadPoint(
        rate, rate, goodput, p50_s, p99_s / 2, p99_s, p99_s * 2, 0.0004, 12_345, 0, 0, 0, behind=False, cpu_share=0.4
    )
    return replace(base, **rest)  # type: ignore[arg-type]


POINTS = [
    point(100.0, 100.0, 0.0012, 0.003),
    point(400.0, 399.0, 0.0017, 0.0072),
    point(700.0, 690.0, 0.014, 0.09),
    point(1400.0, 702.0, 0.8, 0.95, overloaded=6900, deadline_exceeded=12, other_errors=1),
    point(5000.0, 700.0, 0.81, 0.97, overloaded=33_000, behind=True, sent_rate=4000.0),
]


def report(points: list[LoadPoint]) -> LoadReport:
    job = BenchJob("digits", "serving_default", (), 4)
    loads = [Load(each.rate, Course(10.0, Warmup(1.0)), 0.5) for each in points or POINTS]
    return LoadReport(job, 2, loads, points, Counter(Overloaded=39_900), {"Overloaded": "the queue is full"})


@pytest.fixture(autouse=True)
def in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


# --- rates


def test_rates_between_two() -> None:
    assert several_rates("10:1000:3") == pytest.approx((10, 100, 1000))
    rates = several_rates("0.5:100")
    assert len(rates) == 8
    assert (rates[0], rates[-1]) == (0.5, 100.0)
    assert {round(later / earlier, 6) for earlier, later in itertools.pairwise(rates)} == {2.131663}


def test_rates_as_they_are_listed() -> None:
    assert several_rates("50, 100,20") == (50.0, 100.0, 20.0)
    assert several_rates("7") == (7.0,)
    assert one_rate("1e3") == 1000.0


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "nan", "inf", "1e9", "1,,2", "1:", ":2", "5:5", "9:3", "1:2:"])
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        several_rates(text)


@pytest.mark.parametrize("text", ["1:2:1", "1:2:101", "1:2:x", "1:2:3:4", "1:2:-3", "1:2:2.5"])
def test_steps_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match="STEPS is a number from 2 to 100"):
        several_rates(text)


def test_rates_without_an_end() -> None:
    steps = rate_steps("100:")
    assert steps.endless
    assert steps.values[:3] == (100.0, 150.0, 225.0)
    assert 50_000 < steps.values[-1] <= 100_000
    assert rate_steps("50,100") == Steps((50.0, 100.0))


def test_numbers_in_flight() -> None:
    assert several_counts("16") == Steps((16.0,))
    assert several_counts("1,4,9") == Steps((1.0, 4.0, 9.0))
    assert several_counts("1:20") == Steps((1.0, 2.0, 4.0, 8.0, 16.0, 20.0))
    assert several_counts("1:16") == Steps((1.0, 2.0, 4.0, 8.0, 16.0))
    assert several_counts("1:4:8") == Steps((1.0, 2.0, 3.0, 4.0))
    endless = several_counts("4:")
    assert (endless.endless, endless.values[:3], endless.values[-1]) == (True, (4.0, 8.0, 16.0), 65_536)


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "x", "1e3", "99999999", ":", ":4", "4:4", "8:2", "1:x", "1,,2"])
def test_numbers_in_flight_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter):
        several_counts(text)


# --- tables


def test_a_rate_is_a_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    report(POINTS).show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "digits serving_default: open loop, Poisson arrivals, 4 rows a job, 2 clients, timeout 0.5 s, 10 s a rate"
    )
    assert lines[2].split("  ")[0] == "ASKED/S"
    rows = [line.split() for line in lines[3:8]]
    assert rows[0] == ["100.0", "100.0", "100.0", "1.20", "1.50", "3.00", "6.00", "12,345", "0", "0", "0"]
    assert rows[3][-3:] == ["6,900", "12", "1"]
    behind = [line for line in lines if line.startswith("asked for ")]
    assert len(behind) == 1
    assert behind[0].startswith("asked for 5,000/s, sent 80.0 % of them: this process cannot send faster")
    assert lines[-1] == "39,900 Overloaded, the last: the queue is full"


def test_a_process_that_is_busy_with_itself_says_so() -> None:
    assert pace_lines(POINTS[:4]) == []
    assert pace_lines([replace(POINTS[0], cpu_share=0.82)]) == [
        "at 100.0/s this process used 82.0 % of a processor: the latencies hold its own slowness"
    ]


@pytest.mark.parametrize("width", [72, 80, 100, 160])
def test_a_terminal_has_its_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = report(POINTS)
    shown.errors.clear()
    shown.points = POINTS[:4]  # the lines under the table are sentences
    shown.show()
    shown.show_curve()
    lines = capsys.readouterr().out.splitlines()[2:]
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for word in ("1,400", "6,900", "12,345", "12", "1.20", "● p99", "capacity 702.0/s"):
        assert word in text


def test_json_has_no_nan() -> None:
    shown = report([point(10.0, 0.0, math.nan, math.nan, answered=0, lag_p99_s=math.nan)])
    found = json.loads(json.dumps(shown.values(), allow_nan=False))
    assert found["points"][0]["p99_s"] is None
    assert found["points"][0]["rate"] == 10.0
    assert (found["timeout_s"], found["arrivals"], found["errors"]) == (0.5, "poisson", {"Overloaded": 39_900})
    assert shown.nothing() == "every job failed (Overloaded)"


def test_a_report_grows() -> None:
    load = Load(10.0, Course(1.0), 1.0, seed=None)
    shown = LoadReport(BenchJob("m", "s", (), 1), 1, [load])
    assert shown.about == "open loop, even arrivals, 1 row a job, timeout 1 s, 1 s"
    assert "no job came" in shown.nothing()
    shown.add(load, Measured(elapsed_s=1.0, due=10, sent=10, latencies_s=[0.001] * 9, errors=Counter(Overloaded=1)))
    shown.add(load, Measured(early="interrupted"))  # before anything of this rate was counted
    assert len(shown.points) == 1
    assert shown.points[0].goodput == 9.0
    assert shown.errors == {"Overloaded": 1}
    assert shown.values()["ended_early"] == "interrupted"
    assert not shown.nothing()


def test_a_bound_ends_a_sweep_and_has_a_best_rate() -> None:
    def measured(latency_s: float, sent: int = 100, answered: int = 100) -> Measured:
        return Measured(elapsed_s=10.0, due=sent, sent=sent, latencies_s=[latency_s] * answered)

    shown = replace(report([]), bound_s=0.05)
    assert shown.add(Load(10.0, Course(10.0), 0.5), measured(0.01))
    assert not shown.add(Load(20.0, Course(10.0), 0.5), measured(0.06, 200, 200))
    assert shown.verdict() == "p99 within 50 ms: up to 10.00/s, of 10.00/s asked for"
    assert shown.values()["best"] == 10.0
    # Those who were refused were not answered in time, however fast the others were.
    shed = replace(report([]), bound_s=0.05)
    assert not shed.add(Load(10.0, Course(10.0), 0.5), measured(0.01, answered=50))
    assert shed.verdict() == "p99 within 50 ms: not even at 10.00/s"


# --- curves


def test_a_curve_of_text() -> None:
    lines = drawn(report(POINTS).curve(), 80).plain.splitlines()
    assert all(len(line) == 80 for line in lines[:1] + lines[1 : HEIGHT + 1])
    assert len(lines) == HEIGHT + 3
    assert lines[0].split() == ["ms", "●", "p99", "○", "p50", "capacity", "702.0/s"]
    plot = lines[1 : HEIGHT + 1]
    labels = {line.split("┤")[0].strip(): number for number, line in enumerate(plot) if "┤" in line}
    assert list(labels) == ["1,000", "100", "10", "1"]
    # Evenly apart, for the axis is logarithmic.
    assert [labels[text] for text in ("1,000", "100", "10", "1")] == pytest.approx([0, 17 / 3, 34 / 3, 17], abs=0.5)
    (first,) = (line for line in plot if line.count("○") and line.index("○") < 30)
    assert plot.index(first) == 17 - round(17 * math.log10(1.2) / 3)
    assert first.index("○") == 10 + round(100 / 702 * 69)
    assert sum(line.count("┊") for line in plot) >= 10
    assert lines[-1].split() == ["0", "goodput,", "answers/s", "702.0"]


def test_a_curve_of_little() -> None:
    assert drawn(report([]).curve(), 80).plain == ""
    assert drawn(report([point(10.0, 0.0, math.nan, math.nan)]).curve(), 80).plain == ""
    one = drawn(report([point(10.0, 10.0, 0.001, 0.001)]).curve(), 80).plain
    assert "no limit up to 10.00/s" in one
    assert one.count("○") == 2  # one of them in the legend


def test_a_curve_in_a_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    drawer()(tmp_path / "curve.svg", report(POINTS).curve())
    svg = (tmp_path / "curve.svg").read_text()
    for text in ("digits serving_default", "capacity 702/s", "timeout 0.5 s", "the sender at its limit", "p50", "p99"):
        assert f"<!-- {text} -->" in svg


def test_a_curve_of_nothing_in_a_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    drawer()(tmp_path / "curve.png", report([point(10.0, 0.0, math.nan, math.nan)]).curve())
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PoolError, match=r"--plot needs matplotlib: pip install 'tf-worker-pool\[plot\]'"):
        drawer()

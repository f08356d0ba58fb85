"""What is printed and drawn of open loops."""

import json
import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.text import Text

from pool.bench.figure import drawer
from pool.bench.load import BenchJob, Load
from pool.bench.point import Point
from pool.bench.report import LoadReport
from pool.errors import Incompatible
from pool.terminal import show
from pool.terminal.plot import HEIGHT

JOB = BenchJob("digits", "serving_default", [{"pixels": np.zeros((4, 64))}])
SECONDS = 10.0


def open_load(rate: float, **rest: float | None) -> Load:
    return Load(rate=rate, duration_s=SECONDS, warmup_s=1.0, **{"timeout_s": 1.0, **rest})  # type: ignore[arg-type]


def point(
    rate: float, answers: int, p50_s: float, p99_s: float, errors: dict[str, int] | None = None, sent: int | None = None
) -> Point:
    """Of ten seconds. Half of the answers come after `p50_s`, of the others most after the p99."""
    due = round(rate * SECONDS)
    return Point(
        open_load(rate),
        elapsed_s=SECONDS,
        latencies_s=[p50_s] * (answers - answers // 2) + [p99_s] * (answers // 2),
        errors=Counter(errors),
        last_error=dict.fromkeys(errors or {}, "the queue is full"),
        due=due,
        lags_s=[0.0004] * (due if sent is None else sent),
        cpu_share=0.4,
    )


POINTS = [
    point(100.0, 1000, 0.0012, 0.003),
    point(400.0, 3990, 0.0017, 0.0072),
    point(700.0, 6900, 0.014, 0.09),
    point(1400.0, 7020, 0.8, 0.95, {"Overloaded": 6900, "DeadlineExceeded": 12, "ModelFailed": 1}),
    point(5000.0, 7000, 0.81, 0.97, {"Overloaded": 33_000}, sent=40_000),
]


def report(points: list[Point]) -> LoadReport:
    return LoadReport(JOB, 2, [each.load for each in points or POINTS], several=True, points=points)


def printed(
    shown: LoadReport, capsys: pytest.CaptureFixture[str], width: int = 80, *, curve: bool = False
) -> list[str]:
    for number, block in enumerate(shown.text(width, curve=curve)):
        if number:
            print()  # noqa: T201
        show(block)
    return capsys.readouterr().out.splitlines()


@pytest.fixture(autouse=True)
def in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


# --- tables


def test_a_rate_is_a_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(report(POINTS), capsys)
    assert lines[0] == (
        "digits serving_default: open loop, Poisson arrivals, 4 rows a job, 2 clients, timeout 1 s, 10 s a rate"
    )
    assert lines[2].split("  ")[0] == "ASKED/S"
    rows = [line.split() for line in lines[3:8]]
    assert rows[0] == ["100.0", "100.0", "100.0", "1.20", "3.00", "3.00", "3.00", "3.00", "0"]
    assert rows[3][-1] == "6,913"
    told = [line for line in lines[8:] if line]
    assert told[:3] == [
        "at 1,400/s 6,900 Overloaded, the last: the queue is full",
        "at 1,400/s 12 DeadlineExceeded, the last: the queue is full",
        "at 1,400/s 1 ModelFailed, the last: the queue is full",
    ]
    assert told[4].startswith("at 5,000/s 80.0 % of the jobs were sent: this process cannot send faster")


def test_a_process_that_is_busy_with_itself_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(printed(report(POINTS[:1]), capsys)) == 4
    busy = replace(POINTS[0], cpu_share=0.82)
    assert printed(report([busy]), capsys)[-1] == (
        "at 100.0/s the client used 82.0 % of a processor: it may be the bottleneck; give more --clients"
    )


@pytest.mark.parametrize("width", [80, 100, 160])
def test_a_terminal_has_its_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = printed(report(POINTS), capsys, width, curve=True)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for word in ("1,400", "6,900", "6,913", "12", "1.20", "● p99", "capacity 702.0/s"):
        assert word in text


def test_json_has_no_nan() -> None:
    shown = report([point(10.0, 0, math.nan, math.nan, {"Overloaded": 100})])
    found = json.loads(json.dumps(shown.values(), allow_nan=False))
    assert found["points"][0]["p99_s"] is None
    assert found["points"][0]["rate"] == 10.0
    assert (found["timeout_s"], found["arrivals"], found["errors"]) == (1.0, "poisson", {"Overloaded": 100})
    assert shown.nothing() == "every job failed (Overloaded)"


def test_a_report_grows() -> None:
    load = Load(rate=10.0, duration_s=1.0, timeout_s=1.0, seed=None)
    shown = LoadReport(BenchJob("m", "s", [{}]), 1, [load])
    assert shown.about == "open loop, even arrivals, 1 row a job, timeout 1 s, 1 s"
    assert "no job came" in shown.nothing()
    refused = Counter(Overloaded=1)
    shown.add(Point(load, elapsed_s=1.0, due=10, lags_s=[0.0] * 10, latencies_s=[0.001] * 9, errors=refused))
    shown.add(Point(load, early="interrupted"))  # before anything of this rate was counted
    assert len(shown.points) == 1
    assert shown.points[0].goodput == 9.0
    assert shown.values()["errors"] == {"Overloaded": 1}
    assert shown.values()["ended_early"] == "interrupted"
    assert not shown.nothing()


def test_a_bound_ends_a_sweep_and_has_a_best_rate(capsys: pytest.CaptureFixture[str]) -> None:
    def measured(rate: float, latency_s: float, sent: int = 100, answered: int = 100) -> Point:
        latencies_s = [latency_s] * answered
        return Point(open_load(rate), elapsed_s=10.0, due=sent, lags_s=[0.0] * sent, latencies_s=latencies_s)

    shown = replace(report([]), bound_s=0.05)
    assert shown.add(measured(10.0, 0.01))
    assert not shown.add(measured(20.0, 0.06, 200, 200))
    assert printed(shown, capsys)[-1] == "p99 within 50 ms: up to 10.00/s, of 10.00/s requested"
    assert shown.values()["best"] == 10.0
    # Those who were refused were not answered in time, however fast the others were.
    shed = replace(report([]), bound_s=0.05)
    assert not shed.add(measured(10.0, 0.01, answered=50))
    assert printed(shed, capsys)[-1] == "p99 within 50 ms: not even at 10.00/s"


# --- curves


def drawn(shown: LoadReport) -> str:
    return "".join(block.plain for block in shown.text(80, curve=True) if isinstance(block, Text))


def test_a_curve_of_text() -> None:
    lines = drawn(report(POINTS)).splitlines()
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
    assert drawn(report([point(10.0, 0, math.nan, math.nan)])) == ""
    one = drawn(report([point(10.0, 100, 0.001, 0.001)]))
    assert "no limit up to 10.00/s" in one
    assert one.count("○") == 2  # one of them in the legend


def test_a_curve_in_a_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    drawer()(tmp_path / "curve.svg", report(POINTS))
    svg = (tmp_path / "curve.svg").read_text()
    for text in ("digits serving_default", "capacity 702.0/s", "timeout 1 s", "the sender at its limit", "p50", "p99"):
        assert f"<!-- {text} -->" in svg


def test_a_curve_of_nothing_in_a_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    drawer()(tmp_path / "curve.png", report([point(10.0, 0, math.nan, math.nan)]))
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(Incompatible, match=r"--plot needs matplotlib: pip install 'tf-worker-pool\[plot\]'"):
        drawer()

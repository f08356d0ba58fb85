"""What is printed, written and drawn of closed loops, and of the stages of their jobs."""

import csv
import json
import math
from array import array
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pool.bench.figure import drawer
from pool.bench.load import BenchJob, Load
from pool.bench.point import Point
from pool.bench.report import LoadReport, write_csv
from pool.errors import InvalidInput
from pool.terminal import show

JOB = BenchJob("digits", "serving_default", [{"pixels": np.zeros((4, 64))}])
LOADS = [Load(in_flight=count, duration_s=10.0) for count in (1, 2, 4)]
SIXTEEN = Load(in_flight=16, duration_s=10.0)


def printed(report: LoadReport, capsys: pytest.CaptureFixture[str], *, curve: bool = False) -> list[str]:
    """As a pipe gets it."""
    for number, block in enumerate(report.text(80, curve=curve)):
        if number:
            print()  # noqa: T201
        show(block)
    return capsys.readouterr().out.splitlines()


def measured(load: Load, count: int, latency_s: float = 0.01, **rest: object) -> Point:
    stages = {"queue": array("d", [latency_s / 4] * count), "run": array("d", [latency_s * 3 / 4] * count)}
    return Point(load, elapsed_s=10.0, latencies_s=[latency_s] * count, segments_s=stages, **rest)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def sweep() -> LoadReport:
    report = LoadReport(JOB, 1, LOADS, several=True, bound_s=0.05)
    assert report.add(measured(LOADS[0], 1000))
    assert report.add(measured(LOADS[1], 1900, 0.02))
    assert not report.add(
        measured(LOADS[2], 1950, 0.08, errors=Counter(Overloaded=3), last_error={"Overloaded": "full"})
    )
    return report


def test_a_sweep_ends_with_the_bound_and_has_a_best(capsys: pytest.CaptureFixture[str]) -> None:
    report = sweep()
    lines = printed(report, capsys)
    assert lines[0] == "digits serving_default: closed loop, 4 rows a job, 10 s each"
    assert lines[2].split()[:3] == ["IN", "FLIGHT", "JOBS/S"]
    assert [line.split()[:3] for line in lines[3:6]] == [
        ["1", "100.0", "400.0"],
        ["2", "190.0", "760.0"],
        ["4", "195.0", "780.0"],
    ]
    assert lines[-3] == "with 4 in flight 3 Overloaded, the last: full"
    assert lines[-1] == "p99 within 50 ms: up to 190.0/s, with 2 in flight"
    assert report.values()["best"] == 2
    # From 2 to 4 in flight it gained 3 %.
    assert any("capacity 195.0/s" in line for line in printed(report, capsys, curve=True))


def test_a_bound_that_nothing_keeps(capsys: pytest.CaptureFixture[str]) -> None:
    report = LoadReport(JOB, 1, LOADS, several=True, bound_s=0.001)
    assert not report.add(measured(LOADS[0], 1000))
    assert printed(report, capsys)[-1] == "p99 within 1 ms: not even with 1 in flight"
    assert report.values()["best"] is None


def test_one_point_has_its_stages(capsys: pytest.CaptureFixture[str]) -> None:
    report = LoadReport(JOB, 2, [SIXTEEN])
    report.add(measured(SIXTEEN, 1000, unsteady="never stable: so it is", cpu_share=0.9))
    lines = printed(report, capsys)
    assert lines[0] == "digits serving_default: 16 in flight, 4 rows a job, 2 clients"
    assert lines[1] == "1,000 jobs in 10.00 s"
    assert "never stable: so it is" in lines
    assert "the client used 90.0 % of a processor: it may be the bottleneck; give more --clients" in lines
    assert lines[-2].split()[:6] == ["queue", "2.50", "2.50", "2.50", "25.0", "%"]
    assert lines[-1].split()[:6] == ["run", "7.50", "7.50", "7.50", "75.0", "%"]


def test_nothing_was_measured() -> None:
    report = LoadReport(JOB, 1, [SIXTEEN])
    report.add(Point(SIXTEEN, elapsed_s=10.0))
    assert report.nothing() == "no job was answered within 10 s; give a longer --duration"
    values = json.loads(json.dumps(report.values(), allow_nan=False))
    assert values["latency_ms"]["p99"] is None
    report = LoadReport(JOB, 1, [SIXTEEN])
    report.add(Point(SIXTEEN, early="interrupted"))
    assert report.nothing() == "interrupted"
    report = LoadReport(JOB, 1, [SIXTEEN])
    report.add(Point(SIXTEEN, elapsed_s=1.0, errors=Counter(ModelFailed=3), last_error={"ModelFailed": "boom"}))
    assert report.nothing() == "every job failed (ModelFailed)"


def test_stages_add_up_and_an_open_loops_lateness_is_one() -> None:
    stages = Point(
        Load(rate=10.0, duration_s=1.0),
        lags_s=[0.001] * 2,
        segments_s={"queue": array("d", [0.0, 0.002]), "run": array("d", [0.004, 0.004])},
    ).stages
    assert list(stages) == ["sent late", "queue", "run"]
    assert math.fsum(stage["share"] for stage in stages.values()) == pytest.approx(1.0)
    assert stages["queue"]["mean_s"] == pytest.approx(0.001)
    assert (stages["queue"]["p50_s"], stages["queue"]["p99_s"]) == (0.0, 0.002)
    assert Point(SIXTEEN).stages == {}


def test_a_line_of_csv_is_a_point(tmp_path: Path) -> None:
    values = sweep().values()
    write_csv(tmp_path / "b.csv", values)
    with (tmp_path / "b.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["in_flight"] for line in lines] == ["1", "2", "4"]
    assert [line["model"] for line in lines] == ["digits"] * 3
    assert float(lines[1]["latency_ms.p99"]) == pytest.approx(20.0)
    assert float(lines[0]["stages.run.p50_s"]) == pytest.approx(0.0075)
    assert [line["errors.Overloaded"] for line in lines] == ["", "", "3"]
    assert [line["ended_early"] for line in lines] == [""] * 3


def test_csv_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"--csv .*: Is a directory"):
        write_csv(tmp_path, {})


def test_a_sweep_in_a_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    drawer()(tmp_path / "curve.svg", sweep())
    svg = (tmp_path / "curve.svg").read_text()
    for text in (
        "capacity 195.0/s",
        "jobs in flight",
        "bound of the p99, 50.00 ms",
        "closed loop, 4 rows a job, 10 s each",
    ):
        assert f"<!-- {text} -->" in svg
    assert "all that was requested" not in svg

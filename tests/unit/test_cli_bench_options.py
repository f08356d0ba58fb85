"""Which options of `pool bench` belong together: said before a pool is looked for."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pool.cli.bench import bench
from pool.cli.bench_options import duration, warmup_time


@pytest.mark.parametrize(("text", "seconds"), [("50ms", 0.05), ("1.5s", 1.5), ("2m", 120), ("0.25", 0.25), ("3 s", 3)])
def test_a_duration(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "x", "0", "0ms", "-1s", "5 days", "nan", "inf", "1e3", "99999h", "86400"])
def test_a_duration_that_is_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no duration"):
        duration(text)


def test_a_warm_up() -> None:
    assert warmup_time("stable") is None
    assert (warmup_time("0"), warmup_time("2"), warmup_time("500ms")) == (0.0, 2.0, 0.5)
    with pytest.raises(click.BadParameter):
        warmup_time("unstable")


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        ("--open-loop 5 --sweep 1:2", "give one of them"),
        ("--open-loop 5 --in-flight 4", "--in-flight is of a closed loop"),
        ("--sweep 1:5 --jobs 4", "--jobs is of a closed loop"),
        ("--sweep 1:5 --compare-inprocess", "--compare-inprocess is of a closed loop"),
        ("--uniform", "--uniform is of an open loop"),
        ("--sweep 100:", "needs a --p99-bound"),
        ("--in-flight 1:", "needs a --p99-bound"),
        ("--p99-bound 5ms", "--p99-bound ends a sweep"),
        ("--open-loop 5 --p99-bound 5ms", "--p99-bound ends a sweep"),
        ("--plot x.png", "--plot draws a sweep"),
        ("--sweep 1:2 --plot x.jpg", "x.jpg ends in none of .png, .svg, .pdf"),
        ("--sweep 1:2 --plot /nowhere/x.png", "there is no folder /nowhere"),
        ("--csv /nowhere/x.csv", "there is no folder /nowhere"),
        ("--clients 4 --in-flight 2", "--clients 4 are more than the 2 jobs of --in-flight"),
        ("--clients 4 --in-flight 2:64", "--clients 4 are more"),
        ("--warmup 1 --stability 5", "--stability is of --warmup stable"),
        ("--warmup 1 --window 5", "--window is of --warmup stable"),
        ("--compare-inprocess --jobs 5", "leave out it or --jobs"),
        ("--compare-inprocess --in-flight 1:4", "leave out it or a sweep"),
        ("--input-data FILE --input 5", "give one of them"),
        ("--input-data FILE --zero-data", "--zero-data is of inputs that are made"),
        ("--input-data FILE --shape x:1", "--shape is of inputs that are made"),
        ("--zero-data --string-length 5", "empty strings"),
        ("--input-data /nowhere", "does not exist"),
    ],
)
def test_what_does_not_belong_together(argv: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text("{}")
    done = CliRunner().invoke(bench, ["echo", *argv.replace("FILE", str(file)).split()])
    assert done.exit_code == 2
    assert reason in " ".join(done.output.replace("│", "").split())

"""Which options of `pool bench` belong together: said before a pool is looked for."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pool.cli.bench import bench
from pool.cli.steps import duration, warmup_time


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
        ("sweep", "give --in-flight LOW:HIGH or --rate LOW:HIGH"),
        ("sweep --in-flight 1:4 --rate 5:10", "give --in-flight LOW:HIGH or --rate LOW:HIGH"),
        ("sweep --rate 1:5 --jobs 4", "--jobs is of closed loops"),
        ("sweep --in-flight 1:4 --uniform", "--uniform is of open loops"),
        ("sweep --rate 100:", "needs a --p99-bound"),
        ("sweep --in-flight 1:", "needs a --p99-bound"),
        ("sweep --rate 1:2 --plot x.jpg", "x.jpg ends in none of .png, .svg, .pdf"),
        ("sweep --rate 1:2 --plot /nowhere/x.png", "there is no folder /nowhere"),
        ("sweep --clients 4 --in-flight 2:64", "--clients 4 are more"),
        ("run --in-flight 1:4", "'1:4' is no number of jobs in flight"),
        ("run --csv /nowhere/x.csv", "there is no folder /nowhere"),
        ("run --clients 4 --in-flight 2", "--clients 4 are more than the 2 jobs of --in-flight"),
        ("run --warmup 1 --stability 5", "--stability is of --warmup stable"),
        ("open-loop --rate 5 --warmup 1 --window 5", "--window is of --warmup stable"),
        ("open-loop", "Missing option '--rate'"),
        ("compare --in-flight 1:4", "'1:4' is no number of jobs in flight"),
        ("compare --clients 17", "--clients 17 are more than the 16 jobs of --in-flight"),
        ("run --input-data FILE --input 5", "give one of them"),
        ("compare --input-data FILE --zero-data", "--zero-data is of inputs that are made"),
        ("run --input-data FILE --shape x:1", "--shape is of inputs that are made"),
        ("run --zero-data --string-length 5", "empty strings"),
        ("run --input-data /nowhere", "does not exist"),
    ],
)
def test_what_does_not_belong_together(argv: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text("{}")
    kind, *rest = argv.replace("FILE", str(file)).split()
    assert_refused([kind, "echo", *rest], reason)


@pytest.mark.parametrize(
    ("argv", "kind"),
    [
        ("digits", "run MODEL"),
        ("digits --in-flight 4", "run MODEL"),
        ("--duration 4 digits", "run MODEL"),
        ("digits --open-loop=500 --timeout 0.1", "open-loop MODEL --rate RATE"),
        ("digits --sweep 100:3000 --plot x.png", "sweep MODEL --rate LOW:HIGH"),
        ("digits --in-flight 1: --p99-bound 50ms", "sweep MODEL --in-flight LOW:HIGH"),
        ("digits --compare-inprocess", "compare MODEL"),
    ],
)
def test_a_benchmark_of_no_kind_names_the_one_that_is_meant(argv: str, kind: str) -> None:
    assert_refused(argv.split(), f"is no kind of benchmark; write: pool bench {kind}")


@pytest.mark.parametrize("kind", ["run", "sweep", "open-loop", "compare"])
def test_each_kind_has_its_options_alone(kind: str) -> None:
    done = CliRunner().invoke(bench, [kind, "--help"])
    assert done.exit_code == 0
    own = {
        "--plot": ["sweep"],
        "--p99-bound": ["sweep"],
        "--uniform": ["sweep", "open-loop"],
        "--jobs": ["run", "sweep"],
    }
    own["--warmup"] = ["run", "sweep", "open-loop"]
    for option, kinds in own.items():
        assert (f" {option} " in done.output) == (kind in kinds), option
    for option in ("--input-data", "--clients", "--csv", "--json", "--duration", "--endpoint"):
        assert f" {option} " in done.output


def assert_refused(argv: list[str], reason: str) -> None:
    done = CliRunner().invoke(bench, argv)
    assert done.exit_code == 2
    assert reason in " ".join(done.output.replace("│", "").split())

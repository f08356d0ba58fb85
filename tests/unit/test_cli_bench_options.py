"""Which options of `pool bench` belong together: said before a pool is looked for."""

import itertools
from pathlib import Path

import click
import pytest

from pool.cli.bench import Amounts, Duration, Endless
from support.commands import in_process

COUNTS = Amounts("low:[high]", "a whole number of jobs in flight", 65_536, whole=True)
RATES = Amounts("low:[high[:steps]]", "jobs a second", 100_000)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("50ms", 0.05), ("1.5s", 1.5), ("2m", 120), ("1h", 3600), ("0.25", 0.25), ("3 s", 3)],
)
def test_a_duration(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "x", "0", "0ms", "-1s", "5 days", "nan", "inf", "1e3", "99999h", "86400"])
def test_a_duration_that_is_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a duration; write a time with its unit: 250ms, 10s, 2m"):
        Duration().convert(text, None, None)


def test_a_warm_up() -> None:
    warmup = Duration(stable=None, **{"0": 0.0})
    assert warmup.convert("stable", None, None) is None
    assert [warmup.convert(text, None, None) for text in ("0", "2", "500ms")] == [0.0, 2.0, 0.5]
    with pytest.raises(click.BadParameter):
        warmup.convert("unstable", None, None)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("16", [16]),
        ("1,4,9", [1, 4, 9]),
        ("1:20", [1, 2, 4, 8, 16, 20]),
        ("1:16", [1, 2, 4, 8, 16]),
        ("1:4:8", [1, 2, 3, 4]),
    ],
)
def test_numbers_in_flight(text: str, numbers: list[int]) -> None:
    found = COUNTS.convert(text, None, None)
    assert found == numbers
    assert not isinstance(found, Endless)


def test_rates() -> None:
    assert RATES.convert("10:1000:3", None, None) == pytest.approx([10, 100, 1000])
    assert RATES.convert("50, 100,20", None, None) == [50, 100, 20]
    assert RATES.convert("1e3", None, None) == [1000]
    rates = RATES.convert("0.5:100", None, None)
    assert (len(rates), rates[0], rates[-1]) == (8, 0.5, 100.0)
    assert {round(later / earlier, 6) for earlier, later in itertools.pairwise(rates)} == {2.131663}


def test_amounts_without_an_end() -> None:
    rates, counts = RATES.convert("100:", None, None), COUNTS.convert("4:", None, None)
    assert isinstance(rates, Endless)
    assert isinstance(counts, Endless)
    assert rates[:3] == [100, 150, 225]
    assert 50_000 < rates[-1] <= 100_000
    assert (counts[:3], counts[-1]) == ([4, 8, 16], 65_536)


@pytest.mark.parametrize("text", ["", "x", "0", "-1", "nan", "inf", "1e9", "1,,2", ":", ":2", "5:5", "9:3", "1:2:"])
@pytest.mark.parametrize("amounts", [COUNTS, RATES], ids=["counts", "rates"])
def test_amounts_that_are_none(amounts: Amounts, text: str) -> None:
    with pytest.raises(click.BadParameter):
        amounts.convert(text, None, None)


@pytest.mark.parametrize("text", ["1.5", "1e3", "1:x", "99999999"])
def test_numbers_in_flight_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match="whole number of jobs in flight, at most 65,536"):
        COUNTS.convert(text, None, None)


@pytest.mark.parametrize("text", ["1:2:1", "1:2:101", "1:2:x", "1:2:3:4", "1:2:-3", "1:2:2.5"])
def test_steps_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match="STEPS must be a number from 2 to 100"):
        RATES.convert(text, None, None)


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        ("sweep", "needs either --in-flight LOW:HIGH"),
        ("sweep --in-flight 1:4 --rate 5:10", "needs either --in-flight LOW:HIGH"),
        ("sweep --rate 1:5 --jobs 4", "--jobs is only for closed loops"),
        ("sweep --in-flight 1:4 --uniform", "--uniform is only for open loops"),
        ("sweep --rate 100:", "needs --p99-bound"),
        ("sweep --in-flight 1:", "needs --p99-bound"),
        ("sweep --rate 1:2 --plot x.jpg", "x.jpg ends in none of .png, .svg, .pdf"),
        ("sweep --rate 1:2 --plot /nowhere/x.png", "there is no folder /nowhere"),
        ("sweep --clients 4 --in-flight 2:64", "--clients 4 exceeds"),
        ("run --in-flight 1:4", "'1:4': give a whole number of jobs in flight"),
        ("run --csv /nowhere/x.csv", "there is no folder /nowhere"),
        ("run --clients 4 --in-flight 2", "--clients 4 exceeds --in-flight 2: each client needs a job"),
        ("run --warmup 1 --stability 5", "--stability is only for --warmup stable"),
        ("open-loop --rate 5 --warmup 1 --window 5", "--window is only for --warmup stable"),
        ("open-loop", "Missing option '--rate'"),
        ("compare --in-flight 1:4", "'1:4': give a whole number of jobs in flight"),
        ("compare --clients 17", "--clients 17 exceeds --in-flight 16: each client needs a job"),
        ("run --input-data FILE --input 5", "give one of them"),
        ("compare --input-data FILE --zero-data", "--zero-data is only for generated inputs"),
        ("run --input-data FILE --shape x:1", "--shape is only for generated inputs"),
        ("run --zero-data --string-length 5", "empty strings"),
        ("run --input-data /nowhere", "does not exist"),
        ("run --duration 2x", "'2x' is not a duration; write a time with its unit: 250ms, 10s, 2m"),
        ("open-loop --rate 5 --timeout soon", "'soon' is not a duration"),
    ],
)
def test_what_does_not_belong_together(argv: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text("{}")
    kind, *rest = argv.replace("FILE", str(file)).split()
    assert_refused([kind, "echo", *rest], reason)


@pytest.mark.parametrize("argv", ["digits", "digits --in-flight 4", "digits --open-loop=500", "--duration 2s digits"])
def test_a_benchmark_of_no_kind_is_told_the_kinds(argv: str) -> None:
    first, *_ = argv.split()
    assert_refused(argv.split(), f"{first!r} is not one of run, sweep, open-loop, compare; write: pool bench run MODEL")


@pytest.mark.parametrize("kind", ["run", "sweep", "open-loop", "compare"])
def test_each_kind_has_its_options_alone(kind: str) -> None:
    done = in_process("bench", kind, "--help")
    assert done.status == 0
    own = {
        "--plot": ["sweep"],
        "--p99-bound": ["sweep"],
        "--uniform": ["sweep", "open-loop"],
        "--jobs": ["run", "sweep"],
    }
    own["--warmup"] = ["run", "sweep", "open-loop"]
    for option, kinds in own.items():
        assert (f" {option} " in done.out) == (kind in kinds), option
    for option in ("--input-data", "--clients", "--csv", "--json", "--duration", "--endpoint, --name"):
        assert f" {option} " in done.out


def assert_refused(argv: list[str], reason: str) -> None:
    done = in_process("bench", *argv)
    assert done.status == 2
    assert reason in " ".join(done.err.replace("│", "").split())

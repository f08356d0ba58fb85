"""What is made of the turns that the pool and a process without one have taken."""

from collections import Counter

import numpy as np
import pytest

from pool.bench.comparison import Comparison, Turn, Way, usual_rows
from pool.bench.load import BenchJob
from pool.terminal import show


def way(name: str, turns: list[Turn], jobs_a_call: int = 1, in_flight: int | None = None) -> Way:
    made = Way(name, lambda *_: turns[0], jobs_a_call, in_flight)
    for turn in turns:
        made.add(turn)
    return made


def comparison() -> Comparison:
    # In the second round the machine is half as fast, for both.
    ways = [
        way("Session.run in a process", [(1.0, [0.01] * 100), (1.0, [0.02] * 50), (1.0, [0.01] * 100)]),
        way("five jobs a call", [(1.0, [0.02] * 50), (1.0, [0.04] * 25), (1.0, [0.02] * 50)], 5),
        way("pool, 4 in flight", [(1.0, [0.02] * 200), (1.0, [0.04] * 100)], in_flight=4),
    ]
    job = BenchJob("digits", "serving_default", [{"pixels": np.zeros((2, 64))}])
    return Comparison(job, ways, "cpu:0", 2, 1.0, "interrupted")


def test_ratios_are_within_a_round() -> None:
    session, batched, pool = comparison().figures()
    assert (session["jobs_per_s_ratio"], session["p50_ratio"]) == (1.0, 1.0)
    assert (batched["jobs_per_s_ratio"], batched["p50_ratio"], batched["rows_a_call"]) == (2.5, 2.0, 10)
    assert (pool["jobs_per_s_ratio"], pool["p50_ratio"], pool["in_flight"]) == (2.0, 2.0, 4)
    assert session["jobs_per_s"] == pytest.approx(100)
    assert session["rows_per_s"] == pytest.approx(200)


def test_the_whole_rounds_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = comparison()
    assert found.rounds == 2
    for block in found.text():
        show(block)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "digits serving_default: 2 rows a job, 2 rounds in turn, 1 s each, interrupted"
    assert lines[1] == "the process on cpu:0, the pool on 2 slots"
    assert lines[2].split("  ")[0] == "WAY"
    assert lines[3].split()[-5:] == ["100.0", "10.00", "20.00", "1.00", "1.00"]
    assert len(lines) == 7


def test_what_a_lane_is_given_at_once_is_not_taken_for_one_call() -> None:
    assert usual_rows(Counter(), 32) == 0
    assert usual_rows(Counter({1: 1, 24: 5}), 32) == 24
    assert usual_rows(Counter({1: 1, 640: 5}), 32) == 32, "twenty batches, one after the other"

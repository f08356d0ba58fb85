"""The rows of the benchmarks' table: what of ours is measured is chosen before a run, and every row is told of."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from benchmarks import recovery, report
from benchmarks.aims import AIMS, BOUT_WAYS, MAP, SUBMIT
from benchmarks.cases import Case, WrongAnswer, rows_of
from benchmarks.ours import Ours
from benchmarks.peers.bouts import AIMED, CROWDED, MODELS, Probed
from benchmarks.peers.peers import PEERS, Setting
from benchmarks.processor import spent
from benchmarks.run import Run
from benchmarks.sections import measured
from benchmarks.turns import Turns
from pool import Client

BURNT_S = 0.05
IMAGE = Case("image", "", "", "x", "y", "float32", (224, 224, 3), 16)
# Says at once how long it took, as `benchmarks.fresh` does, and is slow to end: as a process with TensorFlow is.
SLOW_TO_END = """
import json, signal, sys, time
def end(*_):
    open(sys.argv[1], "w").write(repr(time.perf_counter()))
    time.sleep(0.3)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print(json.dumps({"load": 1.5}), flush=True)
while True:
    signal.pause()
"""


def a_run(folder: Path) -> Run:
    return Run(folder, {}, {}, 2, 1.0, lambda _: None)


def test_the_chosen_way_counts_though_another_was_faster(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    run.conclude("submit_mosec", {SUBMIT: [10.0, 20.0], MAP: [90.0, 90.0], "mosec": [10.0, 10.0]}, "mosec")
    (result,) = run.results
    assert result.ratio is not None
    assert result.ratio.median == 1.5


@pytest.mark.parametrize("model", MODELS)
def test_every_way_that_meets_a_peer_is_one_of_ours_and_every_aim_of_it_is_measured(model: str) -> None:
    case = Case(model, "", "", "x", "y", "string" if model == "guesslang" else "float32", (3,), 4)
    ways = Ours(cast(Any, None), Turns(case, [], [])).flows()
    assert set(BOUT_WAYS[model]) <= set(ways)
    aims = [AIMS[aim] for (peer, met), aims in AIMED.items() if met == model for aim in aims]
    assert {aim.way for aim in aims} <= set(BOUT_WAYS[model])
    assert all("mosec" in aim.against for aim in aims)


def test_the_rows_of_a_model_differ_in_their_means() -> None:
    noise = np.random.default_rng(1).random((8, *IMAGE.row), np.float32)
    with pytest.raises(WrongAnswer, match="have the same answer"):  # the means of noise alone pass for each other
        IMAGE.check_told_apart([row.mean(keepdims=True) for row in noise])
    IMAGE.check_told_apart([row.mean(axis=(1, 2, 3)) for row in rows_of(IMAGE)])


def test_of_a_probe_the_best_and_the_best_with_so_many_in_flight_are_taken() -> None:
    one, two = Setting(1), Setting(2)
    probed = Probed((one, two), {(0, 32): 90.0, (0, 256): 200.0, (1, 32): 100.0, (1, 256): 150.0})
    assert probed.best() == (one, 256)
    assert probed.best_at(32) == two


def test_the_baseline_of_a_restart_ends_with_the_first_answer(tmp_path: Path) -> None:
    told_to_end = tmp_path / "ended"
    began = time.perf_counter()
    told = recovery.first_answer([sys.executable, "-c", SLOW_TO_END, str(told_to_end)], tmp_path / "log")
    assert told["load"] == 1.5
    # One clock for all processes. It was told to end after the figure was taken, so its end is not in the figure.
    assert began + told["total"] < float(told_to_end.read_text())


def test_what_a_process_spends_is_seen() -> None:
    before, began = spent(os.getpid()), time.process_time()
    while time.process_time() - began < BURNT_S:
        pass
    time.sleep(0.001)  # a wake-up, and the scheduler's books are brought up to date
    cost = spent(os.getpid()).since(before)
    assert cost.processor_s >= BURNT_S * 0.99
    assert cost.wake_ups >= 1
    assert cost.each(10) == (cost.processor_s / 10, cost.wake_ups / 10)


def test_a_report_tells_every_aim_whatever_was_run(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    run.conclude("alone", {"client.run": [2.0, 2.0], "Session.run": [1.0, 1.0]}, "Session.run")
    told = json.loads(report.as_json(run))
    assert [aim["aim"] for aim in told["aims"]] == list(AIMS)
    assert not told["whole"]
    assert {aim["note"] for aim in told["aims"][1:]} == {"no part of this run"}
    assert "tensorflow-serving-api" in told["failures"]["TensorFlow Serving"]


def test_what_was_measured_before_a_failure_stays(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    run.conclude("map_mosec", {MAP: [8.0], "mosec": [2.0]}, "mosec")
    run.missing("map_mosec", "it died later on")
    assert [result.verdict for result in run.results] == ["met"]


def test_the_peers_that_are_named_for_aims_are_there() -> None:
    assert {peer for peer, _ in [*AIMED, CROWDED]} <= set(PEERS)


def test_a_section_that_fails_costs_no_other_its_turn(tmp_path: Path) -> None:
    ran = []

    def wrong(_: Run, __: Client) -> None:
        raise WrongAnswer("1, expected 2")

    def right(run: Run, _: Client) -> None:
        ran.append(run)

    run = a_run(tmp_path)
    measured(run, cast(Client, None), {"lone": wrong, "flows": right})
    assert ran == [run]
    assert run.failures == {"lone": "WrongAnswer: 1, expected 2"}

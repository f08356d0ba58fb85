"""`pool bench` against a real pool: clients that are processes, recorded inputs, comparison, and what goes wrong."""

import csv
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.commands import command_line, run_command
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import children, eventually

pytestmark = pytest.mark.bench

TIMEOUT_S = 60.0

MODELS = """
[[model]]
name = "echo"
path = "stub:echo"
devices = "all"
[[model]]
name = "rows"
path = "stub:rows?run_ms=1"
batching = "always"
devices = "all"
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    with pool_process(stub_config(models=MODELS)) as running:
        yield running


def output(pool: PoolProcess, *argv: str) -> str:
    done = run_command(pool, "bench", *argv)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def figures(pool: PoolProcess, *argv: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output(pool, *argv, "--json"))
    return found


def one_line(pool: PoolProcess, *argv: str, status: int) -> str:
    done = run_command(pool, "bench", *argv)
    assert done.returncode == status, done
    assert done.stderr.startswith("pool: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture
def started() -> "Iterator[list[subprocess.Popen[str]]]":
    """For processes of the test, which end with it."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate(timeout=10)


def begin(pool: PoolProcess, *argv: str) -> "subprocess.Popen[str]":
    """A benchmark that has come to its jobs."""
    with pool.client() as client:
        before = client.status().answered.get("done", 0)
        process = subprocess.Popen(
            command_line(pool, "bench", *argv),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        eventually(lambda: client.status().answered.get("done", 0) > before + 30, 40.0)
    return process


# --- what is measured


def test_it_warms_up_until_it_is_stable(pool: PoolProcess) -> None:
    argv = ["--duration", "0.5", "--in-flight", "2", "--window", "0.2", "--stability", "90", "--longest-warmup", "10"]
    found = figures(pool, "run", "echo", *argv)
    assert found["unsteady"] is None
    assert found["seconds"] == pytest.approx(0.5, abs=0.01)
    never = output(pool, "run", "echo", *argv[:-4], "--stability", "0.001", "--longest-warmup", "1")
    assert "\nnever stable: in 1 s of warm-up, no 3 windows in a row agreed within 0.0 %" in never


def test_stages_and_csv(pool: PoolProcess, tmp_path: Path) -> None:
    table = tmp_path / "bench.csv"
    argv = ["--signature", "double", "--duration", "0.5", "--warmup", "0", "--in-flight", "4", "--csv", str(table)]
    found = figures(pool, "run", "rows", *argv)
    assert list(found["stages"]) == ["encode", "queue", "batch wait", "feed", "run", "fetch", "reply"]
    assert sum(stage["share"] for stage in found["stages"].values()) == pytest.approx(1.0)
    assert found["stages"]["run"]["p50_s"] >= 0.001
    with table.open() as file:
        (line,) = csv.DictReader(file)
    assert (line["model"], line["signature"], line["in_flight"]) == ("rows", "double", "4")
    assert float(line["latency_ms.p99"]) == found["latency_ms"]["p99"]
    shown = output(pool, "run", "rows", *argv)
    assert [line.split()[0] for line in shown.splitlines()[-8:]] == [
        *("STAGE", "encode", "queue", "batch", "feed", "run", "fetch", "reply")
    ]


def test_a_sweep_of_jobs_in_flight_ends_at_the_bound(pool: PoolProcess, tmp_path: Path) -> None:
    table = tmp_path / "bench.csv"
    # A job of this takes 20 ms at least.
    argv = ["--signature", "sleep", "--input", "0.02", "--duration", "0.5", "--warmup", "0", "--csv", str(table)]
    done = run_command(pool, "bench", "sweep", "rows", *argv, "--rows", "1", "--in-flight", "1:", "--p99-bound", "1ms")
    assert done.returncode == 0
    assert "p99 within 1 ms: not even with 1 in flight\n" in done.stdout
    with table.open() as file:
        assert len(list(csv.DictReader(file))) == 1
    found = figures(pool, "sweep", "rows", *argv, "--in-flight", "1,2", "--p99-bound", "20s")
    assert [point["in_flight"] for point in found["points"]] == [1, 2]
    assert found["best"] in (1, 2)


def test_several_clients_are_processes(pool: PoolProcess) -> None:
    found = figures(pool, "run", "echo", "--clients", "2", "--in-flight", "5", "--duration", "1", "--warmup", "0.2")
    assert found["clients"] == 2
    assert found["jobs"] > 20
    assert found["seconds"] == pytest.approx(1.0, abs=0.01)
    assert found["errors"] == {}
    assert sum(stage["share"] for stage in found["stages"].values()) == pytest.approx(1.0)
    exact = figures(pool, "run", "echo", "--clients", "2", "--in-flight", "4", "--jobs", "100", "--warmup", "0")
    assert exact["jobs"] == 100


def test_an_open_loop_of_several_clients(pool: PoolProcess) -> None:
    argv = ["--clients", "2", "--rate", "80", "--uniform", "--duration", "1.5", "--warmup", "0.5"]
    found = figures(pool, "open-loop", "echo", *argv, "--timeout", "5")
    (point,) = found["points"]
    assert 0 < point["answered"] <= 120  # fewer where this machine let a sender fall behind
    assert 0 < point["sent_rate"] * 1.5 < point["answered"] + 0.1  # its last answer may have come late
    assert found["errors"] == {}
    assert next(iter(point["stages"])) == "sent late"


def test_recorded_inputs_take_turns(pool: PoolProcess, tmp_path: Path) -> None:
    np.savez(tmp_path / "jobs.npz", x=np.arange(6, dtype=np.float32))
    argv = ["--signature", "double", "--input-data", str(tmp_path / "jobs.npz"), "--jobs", "20", "--warmup", "0"]
    found = figures(pool, "run", "rows", *argv, "--rows", "3", "--in-flight", "2")
    assert (found["jobs"], found["rows"], found["errors"]) == (20, 3, {})
    # One of these is the guilty row, so it was sent, and as often as the others.
    (tmp_path / "jobs.json").write_text(json.dumps({"data": [{"x": [1]}, {"x": [-1]}, {"x": [2]}, {"x": [3]}]}))
    argv = ["--signature", "fail", "--input-data", str(tmp_path / "jobs.json"), "--jobs", "40", "--warmup", "0"]
    found = figures(pool, "run", "rows", *argv, "--in-flight", "1")
    assert (found["jobs"], found["errors"]) == (30, {"ModelFailed": 10})


def test_a_comparison_with_the_model_in_a_process(pool: PoolProcess, tmp_path: Path) -> None:
    table = tmp_path / "ways.csv"
    # Five rounds: a turn of a fifth of it must see an answer on a machine that is busy.
    argv = ["--signature", "double", "--duration", "5", "--in-flight", "16", "--csv", str(table)]
    found = figures(pool, "compare", "rows", *argv)
    ways = {way["way"]: way for way in found["ways"]}
    assert found["rounds"] == 5
    first = ways["prepared callable in a process"]
    assert (first["jobs_per_s_ratio"], first["p50_ratio"]) == (1.0, 1.0)
    assert 0 < first["jobs_per_s"] < 1000  # a run takes a millisecond
    assert ways["pool, 1 in flight"]["p50_ms"] >= 1
    assert ways["pool, 16 in flight"]["jobs_per_s"] > 0
    batched = [way for way in found["ways"] if way["in_flight"] is None and way["rows_a_call"] > 1]
    assert batched, "none of 16 jobs in flight ran with another"
    for way in batched:  # of each call all jobs count, and one takes a millisecond too
        assert 0 < way["jobs_per_s"] < 1000 * way["rows_a_call"]
        assert way["p50_ms"] >= 1
    with table.open() as file:
        assert [line["way"] for line in csv.DictReader(file)] == list(ways)


# --- what goes wrong


def test_wrong_inputs_are_one_line(pool: PoolProcess, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    argv = ["run", "rows", "--signature", "double", "--input-data", str(file)]
    for content, reason in (
        ("", "neither an .npz archive nor JSON"),
        ('{"data": []}', "it has no jobs"),
        ('{"data": [{"y": [1]}]}', "entry 0: no input 'y'; there are: x"),
        ('{"data": [{"x": [1]}, {"x": [[1, 2]]}]}', "entry 1, x: expected float32 [?], got float32 [1, 2]"),
    ):
        file.write_text(content)
        assert reason in one_line(pool, *argv, status=2)
    assert "does not fit float32 [?]" in one_line(pool, *argv[:4], "--shape", "x:1,2", status=2)
    assert "'y' is not a generated input" in one_line(pool, *argv[:4], "--shape", "y:1", status=2)


def test_a_model_that_is_missing(pool: PoolProcess) -> None:
    for kind, *more in (["run"], ["run", "--clients", "2"], ["compare"]):
        assert "did you mean 'rows'?" in one_line(pool, kind, "row", *more, status=1)


@pytest.mark.parametrize(
    "argv",
    [["open-loop", "--rate", "200"], ["run", "--clients", "2"]],
    ids=" ".join,
)
def test_a_pool_that_dies_meanwhile(argv: list[str]) -> None:
    own = PoolProcess(stub_config(models=MODELS))
    try:
        own.start().await_ready()
        process = begin(own, argv[0], "echo", "--duration", "50", "--warmup", "0", *argv[1:])
        own.running.kill()
        out, err = process.communicate(timeout=30)
    finally:
        own.kill()
    assert (process.returncode, err) == (1, "pool: the pool went away\n")
    assert ", the pool went away" in out
    assert "p99 ms" in out


@pytest.mark.parametrize(
    "argv", [["run", "--clients", "2"], ["open-loop", "--clients", "2", "--rate", "100"]], ids=" ".join
)
def test_ctrl_c_ends_all_clients(pool: PoolProcess, started: "list[subprocess.Popen[str]]", argv: list[str]) -> None:
    process = begin(pool, argv[0], "echo", "--duration", "50", "--warmup", "0", "--json", *argv[1:])
    started.append(process)
    clients = children(process.pid)
    assert len(clients) == 2
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["ended_early"] == "interrupted"
    assert not any(Path(f"/proc/{pid}").exists() for pid in clients)


def test_ctrl_c_in_the_warm_up(pool: PoolProcess, started: "list[subprocess.Popen[str]]") -> None:
    process = begin(pool, "run", "echo", "--warmup", "50")
    started.append(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (1, "pool: interrupted\n")


def test_a_client_that_dies(pool: PoolProcess, started: "list[subprocess.Popen[str]]") -> None:
    process = begin(pool, "run", "echo", "--duration", "50", "--warmup", "0", "--clients", "2")
    started.append(process)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert err.endswith(" of 2 died (SIGKILL)\n")
    assert "p99 ms" in out


def test_clients_end_with_a_bench_that_is_killed(pool: PoolProcess, started: "list[subprocess.Popen[str]]") -> None:
    process = begin(pool, "run", "echo", "--duration", "50", "--warmup", "0", "--clients", "2")
    started.append(process)
    clients = children(process.pid)
    process.kill()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in clients))


def test_a_process_for_comparison_that_dies_or_cannot_load(
    pool: PoolProcess, started: "list[subprocess.Popen[str]]"
) -> None:
    process = subprocess.Popen(
        command_line(pool, "bench", "compare", "rows", "--signature", "double", "--duration", "50"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    started.append(process)
    eventually(lambda: bool(children(process.pid)))
    os.kill(children(process.pid)[0], signal.SIGKILL)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (1, "")
    assert err == "pool: the separate process died (SIGKILL)\n"

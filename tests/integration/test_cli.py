"""The command line against a real pool. A command is a process, as a shell starts it, where that is what counts."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.commands import Done, command_line, in_process, run_command
from support.pool_process import STUBS, PoolProcess, pool_process, stub_config
from support.processes import alive, children, eventually, freeze

TIMEOUT_S = 60.0

BROKEN = f'{STUBS}[[model]]\nname = "broken"\npath = "stub:cannot-load"\n'


def process_output(pool: PoolProcess | None, *argv: str, stdin: bytes = b"") -> str:
    done = run_command(pool, *argv, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def output(pool: PoolProcess | None, *argv: str) -> str:
    done = in_process(*argv, pool=pool)
    assert (done.status, done.err) == (0, "")
    return done.out


def failure(pool: PoolProcess | None, *argv: str) -> str:
    """The one line of a command that must fail."""
    return one_line(in_process(*argv, pool=pool))


def process_failure(pool: PoolProcess | None, *argv: str) -> str:
    done = run_command(pool, *argv)
    return one_line(Done(done.returncode, done.stdout, done.stderr))


def one_line(done: Done) -> str:
    assert done.status == 1, done
    assert done.err.startswith("pool: ")
    assert done.err.count("\n") == 1
    return done.err


@pytest.fixture(scope="module")
def half() -> Iterator[PoolProcess]:
    """A pool without one of its models."""
    with pool_process(stub_config(models=BROKEN)) as running:
        yield running


# --- status and models


def test_status(pool: PoolProcess) -> None:
    lines = process_output(pool, "status").splitlines()
    assert lines[0].startswith(f"pool 0.1.0 at {pool.endpoint}, pid {pool.pid}, up ")
    assert lines[0].endswith(": SERVING")
    assert lines[3].split() == ["SLOT", "DEVICE", "PID", "INC.", "STATE", "DOING", "JOBS", "HOST", "MEM", "MODELS"]
    rows = [line.split() for line in lines[4:6]]
    assert [row[:2] for row in rows] == [["0", "cpu:0"], ["1", "cpu:1"]]
    assert sorted(int(row[2]) for row in rows) == pool.workers()
    assert all(row[3:6] == ["1", "READY", "idle"] for row in rows)
    assert "\x1b" not in "".join(lines)


def test_status_as_json(pool: PoolProcess) -> None:
    found = json.loads(output(pool, "status", "--json"))
    assert found["pid"] == pool.pid
    assert [slot["state"] for slot in found["slots"]] == ["READY", "READY"]
    with pool.client() as client:
        assert found.keys() == client.status().to_dict().keys()


def test_status_shows_what_runs_now(pool: PoolProcess) -> None:
    with pool.client() as client:
        futures = [client.submit("faults", 1.0, signature="sleep") for _ in range(80)]  # however long it takes to look
        eventually(lambda: all(slot.busy_lanes for slot in client.status().slots))
        shown = output(pool, "status")
        assert re.search(r"\d+ jobs: \d+ queued, [1-9]\d* running", shown)
        assert "running faults for " in shown
        for future in futures:
            future.cancel()


WHY = "stub:cannot-load: the stub backend has no model 'cannot-load' to load; mend it, then run `pool reload`"


def test_what_could_not_be_loaded_is_told_by_every_command(half: PoolProcess) -> None:
    ready = re.search(r"ready: 2 of 2 slots serve at \S+, without model broken; `pool status` says why", half.text())
    assert ready is not None
    line = output(half, "status").splitlines()[-1]
    assert re.fullmatch(rf"model broken could not be loaded in slot [01]: {re.escape(WHY)}", line)
    found = json.loads(output(half, "status", "--json"))
    assert [each["model"] for each in found["unloadable"]] == ["broken"]
    assert [slot["state"] for slot in found["slots"]] == ["READY", "READY"]
    (of_models,) = [each for each in json.loads(output(half, "models", "--json")) if each["name"] == "broken"]
    assert (of_models["unloadable"], of_models["slots"]) == (found["unloadable"], [])
    assert failure(half, "health", "--model", "broken") == f"pool: broken is not served: {line}\n"
    assert output(half, "health") == "the pool serves: 2 of 2 slots READY\n"
    with half.client() as client:
        assert not client.is_ready("broken")


def test_models(half: PoolProcess) -> None:
    lines = output(half, "models").splitlines()
    assert lines[1:3] == ["  stub:echo", "  serving_default     in   x: float32 of any shape"]
    assert "broken  in no slot, not ready" in lines
    assert any(WHY in line for line in lines)
    assert any(line.startswith("counter  ") and "stateful" in line for line in lines)
    names = [model["name"] for model in json.loads(output(half, "models", "--json"))]
    assert set(names) == {"echo", "faults", "counter", "broken"}


# --- submit


def test_submit(pool: PoolProcess, tmp_path: Path) -> None:
    assert process_output(pool, "submit", "echo", "--input", "[1, 2.5]") == "x float32 [2]: [1. , 2.5]\n"
    assert output(pool, "submit", "echo", "--input", "x=3") == "x float32 []: 3.0\n"
    text = ["submit", "echo", "--signature", "string", "--input"]
    assert output(pool, *text, "import os") == "x string []: import os\n"
    (tmp_path / "code").write_bytes(b"\xff\x00")
    blob = json.loads(output(pool, *text, f"x=@{tmp_path}/code", "--json"))
    assert blob == {"outputs": {"x": {"dtype": "string", "shape": [], "values": {"b64": "/wA="}}}}
    assert process_output(pool, *text, "@-", stdin=b"from stdin") == "x string []: from stdin\n"


def test_submit_an_array_from_a_file(pool: PoolProcess, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[1, np.nan], [np.inf, -2]], np.float32))
    found = json.loads(output(pool, "submit", "echo", "--input", f"x=@{tmp_path}/x.npy", "--json"))
    assert found["outputs"]["x"] == {"dtype": "float32", "shape": [2, 2], "values": [[1, "NaN"], ["Infinity", -2]]}


def test_submit_with_words_that_cannot_be_right(pool: PoolProcess) -> None:
    for words, reason in (("y=1", "no input 'y'; there are: x"), ("hello", "'hello' is not JSON")):
        done = in_process("submit", "echo", "--input", words, pool=pool)
        assert (done.status, done.out) == (2, "")
        assert reason in done.err
        assert done.err.count("\n") == 1


def test_submit_says_what_the_pool_says(pool: PoolProcess) -> None:
    for value in ("1", "x=[1]", 'x={"k": [1]}'):
        assert "did you mean 'echo'?" in failure(pool, "submit", "ecko", "--input", value)
        assert "did you mean 'string'?" in failure(pool, "submit", "echo", "--signature", "sting", "--input", value)
    assert "has several signatures" in failure(pool, "submit", "faults")
    assert "no output 'y'" in failure(pool, "submit", "echo", "--input", "1", "--output", "y")
    boom = ["submit", "faults", "--signature", "fail", "--input", "text=boom"]
    assert process_failure(pool, *boom) == "pool: boom\n"
    late = ["submit", "faults", "--signature", "sleep", "--input", "2", "--timeout", "0.2"]
    assert "the timeout ended while it ran" in failure(pool, *late)


def test_submit_to_a_model_that_no_worker_can_load(half: PoolProcess) -> None:
    text = f"pool: model 'broken' could not be loaded, so it is not served: {WHY}\n"
    assert failure(half, "submit", "broken", "--input", "1") == text


def test_submit_waits_for_a_pool_that_is_on_its_way() -> None:
    pool = PoolProcess(stub_config(devices='["cpu"]')).start()
    try:
        pool.await_log("pool at")
        assert output(pool, "submit", "echo", "--input", "1") == "x float32 []: 1.0\n"
        assert pool.await_ready().stop() == 0
    finally:
        pool.kill()


def test_submit_does_not_wait_longer_than_its_timeout() -> None:
    models = '[[model]]\nname = "slow"\npath = "stub:load-hang"\n'
    pool = PoolProcess(stub_config(devices='["cpu"]', models=models)).start()
    try:
        pool.await_log("LOADING")
        assert "model slow was not loaded within 0.5 s (slot 0: LOADING" in failure(
            pool, "submit", "slow", "--input", "1", "--timeout", "0.5"
        )
        assert pool.stop() == 0
    finally:
        pool.kill()


def test_submit_with_its_timeline_and_what_explain_says_of_it(pool: PoolProcess) -> None:
    argv = ["submit", "echo", "--input", "1", "--priority", "3", "--device", "cpu:1", "--timeline"]
    timeline = json.loads(output(pool, *argv, "--json"))["timeline"]
    segments = [value for key, value in timeline.items() if key.endswith("_s") and key != "wall_s"]
    assert sum(segments) == pytest.approx(timeline["wall_s"])
    assert timeline["device"] == "cpu:1"
    assert "slot 1 (cpu:1)" in output(pool, *argv)
    told = json.loads(output(pool, "explain", str(timeline["job"]), "--json"))
    assert (told["model"], told["priority"], told["device"], told["state"]) == ("echo", 3, "cpu:1", "DONE")
    shown = output(pool, "explain", str(timeline["job"])).splitlines()
    assert shown[0].startswith(f"job {timeline['job']}: echo")
    assert shown[0].endswith(": DONE")
    assert [line.split(" ms")[0].rsplit(maxsplit=1)[0].strip() for line in shown[3:8]] == [
        "queue",
        "batch wait",
        "feed",
        "run",
        "fetch",
    ]
    assert output(pool, "explain").splitlines()[0].split()[:3] == ["JOB", "STATE", "MODEL"]
    assert "987654321" in failure(pool, "explain", "987654321")


def test_submit_to_a_device_that_is_none(pool: PoolProcess) -> None:
    assert "cpu:1" in failure(pool, "submit", "echo", "--input", "1", "--device", "cpu:9")


# --- bench


def test_bench(pool: PoolProcess) -> None:
    lines = output(pool, "bench", "run", "echo", "--jobs", "200", "--warmup", "0", "--rows", "4").splitlines()
    assert lines[0] == "echo serving_default: 16 in flight, 4 rows a job"
    assert lines[1].startswith("200 jobs in ")
    rate, rows, *latencies, errors = (float(word.replace(",", "")) for word in lines[4].split())
    assert rows == pytest.approx(4 * rate, rel=0.02)
    assert latencies == sorted(latencies)
    assert errors == 0


def test_bench_as_json(pool: PoolProcess) -> None:
    argv = ["--duration", "0.5", "--warmup", "0", "--in-flight", "4", "--input", "[1, 2]", "--json"]
    found = json.loads(output(pool, "bench", "run", "echo", *argv))
    assert found["jobs"] > 0
    assert found["rows"] == 2
    assert found["seconds"] == pytest.approx(0.5, abs=0.01)
    assert found["errors"] == {}
    latency = found["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"] <= latency["max"]


def test_bench_counts_errors_and_fails_if_there_is_nothing_else(pool: PoolProcess) -> None:
    argv = ["--signature", "fail", "--input", "text=boom", "--jobs", "20", "--warmup", "0"]
    done = in_process("bench", "run", "faults", *argv, pool=pool)
    assert done.status == 1
    assert "20 ModelFailed, the last: boom" in done.out
    assert done.err == "pool: every job failed (ModelFailed)\n"


def test_bench_says_at_once_what_the_caller_got_wrong(pool: PoolProcess) -> None:
    assert "did you mean 'echo'?" in failure(pool, "bench", "run", "ecko")
    assert "has several signatures" in failure(pool, "bench", "run", "faults")


def test_an_open_loop(pool: PoolProcess) -> None:
    argv = ["--rate", "100", "--duration", "1", "--warmup", "0.2", "--timeout", "5", "--uniform"]
    found = json.loads(output(pool, "bench", "open-loop", "echo", *argv, "--json"))
    (point,) = found["points"]
    # However slow this machine is: what was sent was answered, and the figures are of that.
    assert 0 < point["answered"] <= 100
    assert point["answered"] == pytest.approx(point["sent_rate"], abs=0.1)
    assert 0 < point["p50_s"] <= point["p90_s"] <= point["p99_s"] <= point["max_s"]
    assert found["errors"] == {}
    assert (found["arrivals"], found["ended_early"]) == ("even", None)


@pytest.mark.bench
def test_a_sweep_draws_its_curve(pool: PoolProcess, tmp_path: Path) -> None:
    argv = ["bench", "sweep", "echo", "--rate", "20:80:3", "--duration", "0.5", "--warmup", "0", "--clients", "2"]
    shown = output(pool, *argv)
    assert "timeout 1 s, 0.5 s a rate" in shown.splitlines()[0]
    assert [line.split()[0] for line in shown.splitlines()[3:6]] == ["20.00", "40.00", "80.00"]
    assert "● p99  ○ p50" in shown
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    drawn = output(pool, *argv, "--plot", str(tmp_path / "curve.png"))
    assert drawn.endswith(f"drawn: {tmp_path}/curve.png\n")
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_an_open_loop_of_errors_alone(pool: PoolProcess) -> None:
    argv = ["--signature", "fail", "--input", "text=boom", "--rate", "50", "--duration", "0.4", "--warmup", "0"]
    done = in_process("bench", "open-loop", "faults", *argv, pool=pool)
    assert done.status == 1
    assert " ModelFailed, the last: boom" in done.out
    assert done.err == "pool: every job failed (ModelFailed)\n"


def test_ctrl_c_ends_a_benchmark_with_what_was_measured(pool: PoolProcess) -> None:
    argv = command_line(pool, "bench", "run", "echo", "--duration", "50", "--warmup", "0", "--json")
    with (
        pool.client() as client,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        before = client.status().answered.get("done", 0)
        try:
            eventually(lambda: client.status().answered.get("done", 0) > before + 50)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, "")
    found = json.loads(out)
    assert found["jobs"] > 20
    assert found["ended_early"] == "interrupted"
    assert found["seconds"] < 40


# --- stop


def test_stop_and_what_follows() -> None:
    with pool_process(stub_config(devices='["cpu"]')) as pool:
        workers = children(pool.pid)
        assert process_output(pool, "stop") == f"stopped (pid {pool.pid})\n"
        assert pool.wait(10) == 0
        assert not any(alive(pid) for pid in workers)
        assert "no pool runs at" in failure(pool, "stop")
        assert f"no pool answers at {pool.endpoint}" in failure(pool, "status")


def test_a_pool_that_is_stopped_by_a_signal_is_told_from_none(half: PoolProcess) -> None:
    freeze(half.pid)  # or it may still answer
    try:
        assert f"does not answer (waited 2 s): its process (pid {half.pid}) is stopped" in failure(half, "status")
    finally:
        half.running.send_signal(signal.SIGCONT)


def test_check_notices_a_pool_that_runs(pool: PoolProcess) -> None:
    assert f"a pool runs at this endpoint now (pid {pool.pid})" in output(None, "check", "--config", str(pool.config))


# --- streams that are not there


@pytest.mark.parametrize(
    ("argv", "streams"),
    [
        (["status"], ">&-"),
        (["submit", "echo", "--input", "x=[1]"], "<&-"),
        (["status"], "<&- >&- 2>&-"),
        (["check"], ">&-"),
    ],
)
def test_a_command_without_some_of_its_streams_does_what_it_does(
    pool: PoolProcess, argv: list[str], streams: str
) -> None:
    asked = command_line(None if argv == ["check"] else pool, *argv)
    done = subprocess.run(["sh", "-c", f'exec "$@" {streams}', "sh", *asked], capture_output=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full"])
def test_a_failure_that_nobody_reads_is_told_by_the_status(tmp_path: Path, streams: str) -> None:
    (tmp_path / "config.toml").write_text("unknown = 1")
    asked = command_line(None, "check", "--config", str(tmp_path / "config.toml"))
    done = subprocess.run(["sh", "-c", f'exec "$@" {streams}', "sh", *asked], capture_output=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("argv", [["status"], ["status", "--json"]])
def test_a_reader_that_leaves_early_gets_no_traceback(pool: PoolProcess, argv: list[str]) -> None:
    process = subprocess.Popen(command_line(pool, *argv), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, said) == (1, b"")


def test_a_pool_without_streams_writes_into_none_of_its_sockets() -> None:
    """The numbers of those that are missing would be its sockets', and what it prints would go there."""
    bare = PoolProcess(stub_config(devices='["cpu"]'))
    try:
        argv = [*command_line(None, "start", "--config"), str(bare.config)]
        bare.process = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *argv])
        with bare.client(connect_timeout=60.0) as client:
            assert client.run("echo", 1.0, timeout=60.0)["x"] == 1.0
        streams = [os.readlink(f"/proc/{bare.pid}/fd/{number}") for number in range(3)]
        assert streams == [os.devnull] * 3
        assert bare.stop() == 0
    finally:
        bare.kill()

"""Workers that hang, stop, crash and are killed, each explained afterwards by a real pool."""

import json
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pool import Client, errors
from pool.wire.records import CrashReport, Feed, SlotHistory
from support.commands import run_command
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

pytestmark = pytest.mark.faults

MODELS = """
[[model]]
name = "faults"
path = "stub:faults"
devices = "all"
"""
HUNG_S = 1.5
BOUNDS = "[queue]\nmax_attempts = 1\n[crash_reports]\nkeep = 3\n[restart]\nbackoff_max = '1s'\n"
REST = f'[health]\nhung_after = "{HUNG_S}s"\n{BOUNDS}'
# A worker that is held up on a busy machine writes its stacks later, but it does.
PATIENT = """
from pool.processes import stacks
stacks.TAKE_S = 60.0
from pool.cli import main
main()
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    """Without `hung_after`: a worker that is held up before it crashes is not to be killed for that."""
    with pool_process(stub_config(models=MODELS, rest=BOUNDS)) as running:
        yield running


@pytest.fixture(scope="module")
def hasty() -> Iterator[Client]:
    """Of a pool that takes a worker for hung after a moment."""
    pool = PoolProcess(stub_config(models=MODELS, rest=REST))
    pool.program = ["-c", PATIENT]
    try:
        pool.start().await_ready()
        with pool.client() as client:
            yield client
        assert pool.stop() == 0, pool.text()
    finally:
        pool.kill()


def explain(pool: PoolProcess, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_command(pool, "explain", *arguments)


def report_of(client: Client, signature: str, inputs: object) -> CrashReport:
    """Has a job of slot 0 end its worker, and returns what is known of it then."""
    # One that is kept to a slot waits there for its next worker.
    with pytest.raises(errors.Quarantined):
        client.run("faults", inputs, signature=signature, device="slot:0", timeout=60.0)
    found = client.explain(slot=0)
    assert found.slot.slot == 0
    report = found.crash_reports[0]
    (batch,) = report.batches
    assert (batch.model, batch.signature, batch.jobs_in_all) == ("faults", signature, 1)
    assert (report.state, report.phase) == ("READY", "serving")
    assert report.beats
    return report


@pytest.mark.parametrize(
    ("how", "where"), [("python", "_hang_in_python"), ("c", "_hang_in_c"), ("locked", "_hang_with_the_lock")]
)
def test_a_hung_worker_says_where(hasty: Client, how: str, where: str) -> None:
    began = time.monotonic()
    report = report_of(hasty, "hang", how)
    assert report.exit == "SIGKILL"
    assert "[health] hung_after" in str(report.killed_for)
    assert f"in {where}" in report.stacks
    assert "in _loop" in report.stacks, "every thread's"
    assert report.note == ""
    assert report.batches[0].feeds == (Feed("", "string", ()),)
    # How late the pool looks is the machine's affair; but it is no older than the job.
    assert HUNG_S <= round(report.batches[0].age_s, 3) <= time.monotonic() - began


def test_a_stopped_worker_is_said_to_be(hasty: Client) -> None:
    report = report_of(hasty, "hang", "stopped")
    assert (report.exit, report.stacks) == ("SIGKILL", "")
    assert "the process was stopped (by SIGSTOP" in report.note
    assert all(": stopped" in line for line in report.threads)


def test_a_crash_in_native_code_says_who_called_it(pool: PoolProcess, client: Client) -> None:
    inputs = {"x": np.ones((2, 4), np.float32), "words": "the secret of nobody"}
    report = report_of(client, "crash", inputs)
    assert (report.exit, report.killed_for) == ("SIGSEGV", None)
    assert report.stacks.startswith("Fatal Python error: Segmentation fault")
    assert "in _crash" in report.stacks
    assert report.last_output[-1] == "the secret of nobody"
    assert report.batches[0].feeds == (Feed("x", "float32", (2, 4)), Feed("words", "string", ()))
    eventually(lambda: bool(re.search(r"BACKOFF: SIGSEGV; it held job \d+; see `pool explain slot:0`", pool.text())))


def test_a_kill_from_outside_is_told_with_its_batch(client: Client) -> None:
    report = report_of(client, "kill", int(signal.SIGKILL))
    assert report.exit == "SIGKILL (out of memory?)"
    assert report.stacks == report.note == ""


def test_what_was_fed_is_not_in_it(client: Client, marker: str) -> None:
    report = report_of(client, "kill_once", {"signal": int(signal.SIGKILL), "marker": marker})
    assert [feed.name for feed in report.batches[0].feeds or ()] == ["signal", "marker"]
    assert marker not in json.dumps(report.to_dict())


def test_the_files_are_private_and_few(client: Client) -> None:
    for status in (41, 42):  # not the same job: that would be refused without a run
        report_of(client, "exit", status)
    found = client.explain(slot=0)
    newest = [f"slot0-{report.incarnation}.json" for report in found.crash_reports[2::-1]]
    folder = Path(found.folder or "")

    def names() -> list[str]:
        return sorted(path.name for path in folder.glob("*.json"))

    # The disk is a thread's: only when the last of them is there, nothing more is to come or to go.
    eventually(lambda: [name.split("-", 2)[2] for name in names()] == newest, saw=names)
    for path in folder.glob("*.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_explain_prints_it(pool: PoolProcess, client: Client) -> None:
    report_of(client, "crash", {"x": np.ones((3, 4), np.float32), "words": "good bye"})
    found = explain(pool, "slot:0")
    assert found.returncode == 0, found.stderr
    assert re.match(r"slot 0 cpu:0, incarnation \d+, pid \d+: SIGSEGV\n", found.stdout)
    for part in ("in _crash", "x  float32 [3, 4]", "its last output\n  good bye\n"):
        assert part in found.stdout
    assert f"all crash reports: {client.explain(slot=0).folder}\n" in found.stdout
    assert json.loads(explain(pool, "slot:0", "--json").stdout)["crash_reports"][0]["exit"] == "SIGSEGV"
    listed = explain(pool)
    assert re.search(r"\d\d:\d\d +slot:0 +cpu:0 +\d+ +SIGSEGV", listed.stdout)
    assert re.search(r"FAILED +faults crash", listed.stdout)


def test_a_slot_that_is_not_there_is_one_line(pool: PoolProcess, client: Client) -> None:
    found = explain(pool, "slot:7")
    assert (found.returncode, found.stderr) == (1, "pool: there is no slot '7'; the last is 1\n")
    for wrong in ("", "x", "-1", "²", "1" * 30):
        with pytest.raises(errors.InvalidInput, match="there is no slot"):
            client._ask(SlotHistory, "explain", f"slot:{wrong}")
    with pytest.raises(ValueError, match="not both"):
        client.explain(1, slot=0)  # type: ignore[call-overload]


def test_one_that_stops_or_restarts_as_asked_leaves_nothing(client: Client) -> None:
    eventually(lambda: all(slot.state == "READY" for slot in client.status().slots))
    assert client.restart(1) == 2
    eventually(lambda: client.status().slots[1].incarnation == 2 and client.status().slots[1].state == "READY")
    assert client.explain(slot=1).crash_reports == ()


def test_a_load_that_hangs_says_in_what() -> None:
    models = '[[model]]\nname = "slow"\npath = "stub:load-hang"\n'
    rest = '[health]\nload_timeout = "500ms"\n[restart]\nintensity = 0\n'
    pool = PoolProcess(stub_config(devices='["cpu"]', models=models, rest=rest)).start()
    try:
        assert pool.wait() == 3
        (path,) = (pool.state / "pool" / "crash_reports").glob("*.json")
        report = json.loads(path.read_text())
        assert (report["state"], report["phase"], report["detail"]) == ("LOADING", "loading", "slow")
        assert "[health] load_timeout" in report["killed_for"]
        assert "backend.py" in report["stacks"]
        assert "in load" in report["stacks"]
        assert "FATAL: 1 deaths" in pool.text()
        assert "see `pool explain slot:0`" in pool.text()
    finally:
        pool.kill()


def test_the_next_pool_tells_what_became_of_the_last_ones_workers(tmp_path: Path) -> None:
    config = stub_config(f'state = "{tmp_path}"', devices='["cpu"]', models=MODELS)
    pool = PoolProcess(config)
    try:
        pool.start().await_ready()
        os.kill(pool.workers()[0], signal.SIGSEGV)
        pool.await_log("BACKOFF: SIGSEGV")
        assert pool.stop() == 0
        pool.log.unlink()
        pool.start().await_ready()
        with pool.client() as client:
            eventually(lambda: client.explain(slot=0).crash_reports != ())
            (report,) = client.explain(slot=0).crash_reports
            assert (report.exit, report.incarnation, report.batches) == ("SIGSEGV", 1, ())
            assert "in _serve" in report.stacks
            assert [death.exit for death in client.explain().deaths] == ["SIGSEGV"]
        assert pool.stop() == 0
        assert len(list((tmp_path / "crash_reports").glob("*.json"))) == 1, "who stops as it is told leaves none"
    finally:
        pool.kill()


def test_the_pool_that_is_told_to_stop_while_it_takes_stacks_leaves_nobody() -> None:
    config = stub_config(devices='["cpu"]', models=MODELS, rest=REST)
    with pool_process(config) as pool, pool.client(reconnect_timeout=0) as client:
        future = client.submit("faults", "locked", signature="hang")
        pool.await_log("STOPPING: has run batch")
        for _ in range(2):
            pool.running.send_signal(signal.SIGTERM)
        assert pool.stop() == 0
        assert future.exception(20) is not None


def test_what_became_of_a_slot_is_told_to_this_machine_alone() -> None:
    config = stub_config('listen = ["tcp://127.0.0.1:*"]', devices='["cpu"]', models=MODELS)
    with pool_process(config) as pool:
        address = re.search(r"listening at (tcp://\S+) too", pool.text())
        assert address is not None
        with Client(address[1]) as client, pytest.raises(errors.NotAllowed, match="only at the local endpoint"):
            client.explain(slot=0)

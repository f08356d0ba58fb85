"""What version 1 of the pool has kept is read, shown and run by this one. The files in `data/version_1` are its own."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pool.kept.format import HEAD_BYTES, format_of
from pool.kept.quarantine import load
from pool.plan.footprints import fingerprint, footprint
from pool.recorder.fault_report import FORMAT, events_of, replay, summary
from pool.recorder.transcript import BadTranscript
from pool.wire.worker_messages import ModelSettings
from support.commands import run_command
from support.pool_process import PoolProcess, stub_config
from support.processes import eventually
from workers.trial_marks import EndedBefore, TrialMarks

FILES = Path(__file__).with_name("version_1")
DTYPES: dict[str, Any] = {
    "float32": np.arange(6, dtype=np.float32).reshape(3, 2),
    "string": np.array([b"\x00ab", b"", "ü".encode()], object),
    "bfloat16": np.array([1.5, -2, 0.25], ml_dtypes.bfloat16),
    "int4": np.array([1, -3, 7], ml_dtypes.int4),
    "complex64": np.array([1 + 2j, 0, 3j], np.complex64),
    "bool": np.array([True, False, True]),
}
SLOT_0 = "20261122-144938.182797-slot0-1.json"


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    """Its state folder is as a pool of version 1 at the same endpoint has left it."""
    pool = PoolProcess(stub_config())
    reports = pool.state / "pool" / "flight"  # as it was called then
    reports.mkdir(parents=True)
    death = json.loads((FILES / "death-slot0-1.json").read_text())
    (reports / SLOT_0).write_text(json.dumps({**death, "endpoint": pool.endpoint}))
    try:
        yield pool.start().await_ready()
        assert pool.stop() == 0
    finally:
        pool.kill()


def test_each_says_its_format() -> None:
    """None of these is the wire's version, which was 7."""
    numbered = {path.name: format_of(path.read_bytes()[:HEAD_BYTES]) for path in FILES.iterdir() if path.name != "mark"}
    assert len(numbered) == 12
    assert set(numbered.values()) == {1}


def test_a_killer_and_its_story() -> None:
    kept = load(FILES / "killer.job")
    assert (kept.model, kept.signature, kept.outputs, kept.rows, kept.number) == ("rows", "kill", ("y",), 2, 1)
    assert kept.history.count("died: SIGKILL") == 2
    assert np.frombuffer(kept.payload[1], np.float32).tolist() == [1.0, -1.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_job_is_run_again(pool: PoolProcess, dtype: str) -> None:
    kept, wanted = load(FILES / f"{dtype}.job"), DTYPES[dtype]
    with pool.client() as client:
        answer = client.submit_payload(
            kept.model, signature=dtype, outputs=kept.outputs, rows=kept.rows, payload=kept.payload
        ).result(30)
    assert (kept.rows, answer["x"].dtype) == (3, wanted.dtype)
    np.testing.assert_array_equal(answer["x"], wanted)


def test_the_command_runs_it_again(pool: PoolProcess) -> None:
    ran = run_command(pool, "submit", "--replay", str(FILES / "float32.job"), "--json")
    assert ran.returncode == 0, ran.stderr
    assert "replaying job 90 of echo, 3 rows" in ran.stderr
    assert json.loads(ran.stdout)["outputs"]["x"]["values"] == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_a_job_of_a_python_number_is_run_again(pool: PoolProcess) -> None:
    """It has no rows, and takes the dtype of its input."""
    ran = run_command(pool, "submit", "--replay", str(FILES / "scalar.job"), "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["outputs"]["x"] == {"dtype": "float32", "shape": [], "values": 7.5}


def test_a_death_is_shown(pool: PoolProcess) -> None:
    with pool.client() as client:
        eventually(lambda: client.explain(slot=0).crash_reports != ())  # a thread reads them
    shown = run_command(pool, "explain", "slot:0")
    assert shown.returncode == 0, shown.stderr
    assert "incarnation 1, pid 16598: SIGKILL (out of memory?)" in shown.stdout
    assert "lane 1 had run batch 1 of rows kill for 0.0 s, 2 rows: 1 job (1)" in shown.stdout
    listed = run_command(pool, "explain")
    assert "SIGKILL (out of memory?)" in listed.stdout


@pytest.mark.parametrize(
    ("name", "answered"), [("fault", {"done": 2, "model-failed": 1}), ("fault-compared", {"done": 3})]
)
def test_a_fault_is_replayed(name: str, answered: dict[str, int]) -> None:
    """In the second one rows were compared."""
    report = json.loads((FILES / f"{name}.json").read_text())
    machine = replay(report)
    machine.validate()
    assert summary(machine) == report["state"]
    assert report["state"]["answered"] == answered


def test_when_rows_began_to_be_compared_is_not_told_any_more() -> None:
    report = json.loads((FILES / "fault-compared.json").read_text())
    assert len([event for *_, event in report["events"] if "WorkerCompared" in event]) == 6
    found = [event["WorkerCompared"] for *_, event in events_of(report, FORMAT) if "WorkerCompared" in event]
    assert len(found) == 3, "of each comparison its end"
    for each in found:
        assert each.keys() == {"slot", "incarnation", "compared"}
        assert "begun" not in each["compared"]["RowsCompared"]


def test_a_report_of_a_newer_format_is_not_half_read() -> None:
    report = json.loads((FILES / "fault.json").read_text())
    with pytest.raises(BadTranscript, match=f"a report of format {FORMAT + 1}; this release reads 1 to {FORMAT}"):
        replay({**report, "format": FORMAT + 1})


def test_a_footprint_is_known(tmp_path: Path) -> None:
    model = ModelSettings("echo", "stub:echo", True)
    key = fingerprint(model, 1)
    (tmp_path / "footprints").mkdir()
    shutil.copy(FILES / "footprint.json", tmp_path / "footprints" / f"{key}.json")
    assert key == "293704efbec832473833ba0ecd03f83b", "under which version 1 has kept it"
    assert footprint(tmp_path, key) == 123456789


def test_a_trial_that_ended_workers_is_remembered(tmp_path: Path) -> None:
    mark = tmp_path / "7affe4b3e2b59d135bdd1c88382aab08"
    shutil.copy(FILES / "mark", mark)
    os.utime(mark, (time.time(), time.time()))
    marks = TrialMarks(tmp_path, "model\0identity")
    with pytest.raises(EndedBefore, match="2 workers died while they tried it"), marks.trying("rows"):
        pass

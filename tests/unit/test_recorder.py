"""What the recorder makes of a worker's end, with the production core and without processes."""

import dataclasses
import json
import logging
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import SlotState
from pool.processes.stacks import Trace
from pool.recorder import Recorder, Shelf
from pool.recorder import recorder as recorder_module
from pool.recorder.batches import LARGEST_TABLE
from pool.recorder.hot_calls import BatchDone, JobArrived
from pool.recorder.recorder import MOST_BEATS, MOST_DEATHS, MOST_REPORTS, OUTPUT_CHARS
from pool.serve.rows import Inputs
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.worker_messages import LaneProgress, Phase
from simulation.driver import Did, Driver, RunBatch, one

ENDPOINT = "ipc:///run/pool.sock"
TABLE = pack(Table((TensorHeader("pixels", "float32", (ROWS, 64), False), TensorHeader("", "string", (ROWS,), True))))
TRACE = Trace(4242, -9, 12.5, "File x.py, line 3 in stuck", ("python: sleeping",), "a note")
GONE = dataclasses.replace(TRACE, status=0)


class Body(Driver):
    """Drives the core and tells the recorder what the pool's loop tells it."""

    def __init__(self, state: Path | None, *placement: list[str], table: bytes = TABLE, **policy: Any) -> None:
        super().__init__(*placement, **policy)
        self.trace: Trace | None = TRACE
        self.table = table
        devices = [f"gpu:{number}" for number in range(len(placement))]
        self.shelf = Shelf(state, 100, 1 << 20, ENDPOINT)
        about = {"pool": "1.0", "instance": "00", "endpoint": ENDPOINT}
        self.recorder = Recorder(self.machine.fleet, devices, self.shelf, about)

    def feed(self, *events: told.Event | JobArrived | BatchDone) -> list[Did]:
        (event,) = events
        if isinstance(event, told.WorkerExited):
            self.recorder.died(event, self.trace, self.now)
        elif isinstance(event, told.WorkerBeat):
            self.recorder.beat(event, self.now)
        actions = super().feed(event)
        for action in actions:
            match action:
                case RunBatch():
                    batch = self.machine.fleet.slots[action.slot].batches[action.batch]
                    for part in batch.parts:
                        part.job.payload = Inputs(self.table, [], None, None)
                    self.recorder.ran(batch)
                case do.KillWorker():
                    self.recorder.killed(action, self.now)
                case do.SlotChanged():
                    self.recorder.changed(action, self.now)
        return actions

    def report(self, slot: int = 0) -> dict[str, Any]:
        found = self.recorder.reports(slot)[0]
        assert json.loads(json.dumps(found)) == found, "it is JSON"
        return found


def test_a_crash_with_a_batch_is_told_whole() -> None:
    body = Body(None, ["m"]).serve()
    body.pass_time(60.0)
    body.feed(told.WorkerBeat(0, 1, Phase.SERVING, "", ()))
    body.submit(rows=3, signature="predict")
    body.pass_time(2.0)
    body.feed(told.WorkerBeat(0, 1, Phase.SERVING, "", (LaneProgress(0, 1, 2.0),)))
    body.pass_time(0.5)
    body.trace = dataclasses.replace(TRACE, status=-11)
    body.die(0, "SIGSEGV", last_output=("one", "two"))
    report = body.report()
    assert (report["slot"], report["incarnation"], report["device"], report["pid"]) == (0, 1, "gpu:0", 4242)
    assert (report["pool"], report["endpoint"], report["up_s"]) == ("1.0", ENDPOINT, 12.5)
    assert report["died_at"].endswith("+00:00")
    assert (report["exit"], report["killed_for"]) == ("SIGSEGV", None)
    assert (report["state"], report["phase"]) == ("READY", "serving")
    assert report["state_s"] == report["phase_s"] == pytest.approx(62.5)
    assert [step["state"] for step in report["states"]] == ["STARTING", "LOADING", "READY"]
    (batch,) = report["batches"]
    assert (batch["batch"], batch["lane"], batch["model"], batch["signature"]) == (1, 0, "m", "predict")
    assert (batch["rows"], batch["jobs"], batch["jobs_in_all"]) == (3, [1], 1)
    assert batch["age_s"] == pytest.approx(2.5)
    assert batch["feeds"] == [
        {"name": "pixels", "dtype": "float32", "shape": [3, 64]},
        {"name": "", "dtype": "string", "shape": [3]},
    ]
    assert [beat["age_s"] for beat in report["beats"]] == pytest.approx([2.5, 0.5])
    assert report["beats"][-1]["running"] == [{"lane": 0, "batch": 1, "age_s": 2.0}]
    assert report["last_output"] == ["one", "two"]
    assert (report["stacks"], report["threads"], report["note"]) == (TRACE.stacks, ["python: sleeping"], "a note")
    assert report["deaths_lately"] == 1
    assert body.recorder.has(0, 1)


def test_a_hung_batch_is_told_as_it_was_when_its_worker_was_killed() -> None:
    body = Body(None, ["m"], hung_after_s=5.0).serve()
    body.submit(timeout_s=1.0)  # answered long before; what was fed is known all the same
    kill = one(body.pass_time(5.0), do.KillWorker)
    assert kill.stacks
    body.pass_time(0.2)
    body.die(0, "SIGKILL")
    report = body.report()
    assert report["killed_for"] == kill.reason
    assert (report["state"], report["state_s"]) == ("READY", pytest.approx(5.0))
    assert [step["state"] for step in report["states"]][-1] == "STOPPING"
    assert report["batches"][0]["age_s"] == pytest.approx(5.0)
    assert report["batches"][0]["feeds"][0]["name"] == "pixels"


def test_a_load_that_takes_too_long_is_told_by_its_phase() -> None:
    body = Body(None, ["m"], load_timeout_s=10.0)
    body.start()
    body.hello(0)
    body.beat(0, Phase.LOADING, "m")
    assert one(body.pass_time(10.0), do.KillWorker).stacks
    body.die(0, "SIGKILL")
    report = body.report()
    assert (report["state"], report["phase"], report["detail"]) == ("LOADING", "loading", "m")
    assert "[health] load_timeout" in report["killed_for"]
    assert report["batches"] == []


@pytest.mark.parametrize(
    ("reason", "stacks"), [("sent an invalid message: nonsense", False), ("did not say HELLO", True)]
)
def test_only_who_hangs_is_asked_for_stacks(reason: str, stacks: bool) -> None:
    body = Body(None, ["m"], import_timeout_s=1.0)
    body.start()
    actions = body.pass_time(1.0) if stacks else body.feed(told.WorkerBroken(0, 1, "nonsense"))
    kill = one(actions, do.KillWorker)
    assert kill.stacks is stacks
    assert kill.reason.startswith(reason)


def test_who_stops_or_restarts_as_it_was_told_leaves_none() -> None:
    body = Body(None, ["m"], ["m"], replacement="off").serve()
    body.feed(told.RestartAsked(0))
    body.trace = GONE
    body.die(0, "exit status 0")
    assert body.recorder.reports(0) == []
    body.feed(told.StopAsked("enough"))
    body.die(1, "exit status 0")
    assert body.recorder.deaths() == []


def test_who_is_killed_because_the_pool_ends_leaves_none() -> None:
    body = Body(None, ["m"]).serve()
    body.submit()
    body.feed(told.StopAsked("enough"))
    assert not one(body.feed(told.StopAsked("now")), do.KillWorker).stacks
    body.die(0, "SIGKILL")
    assert body.recorder.deaths() == []


def test_who_does_not_stop_when_it_is_told_to_is_asked_why() -> None:
    body = Body(None, ["m"], stop_timeout_s=5.0).serve()
    body.feed(told.StopAsked("enough"))
    assert one(body.pass_time(5.0), do.KillWorker).stacks
    body.die(0, "SIGKILL")
    assert "did not exit within 5 s" in body.report()["killed_for"]


def test_who_stops_but_crashes_over_it_leaves_one() -> None:
    body = Body(None, ["m"]).serve()
    body.feed(told.StopAsked("enough"))
    body.trace = dataclasses.replace(TRACE, status=-11)
    body.die(0, "SIGSEGV")
    assert body.report()["exit"] == "SIGSEGV"


def test_an_exit_by_itself_is_none_that_was_asked_for() -> None:
    body = Body(None, ["m"]).serve()
    body.trace = GONE
    body.die(0, "exit status 0")
    assert body.report()["exit"] == "exit status 0"


def test_one_that_could_not_be_spawned_has_no_process() -> None:
    body = Body(None, ["m"])
    body.start()
    body.trace = None
    body.die(0, "cannot be spawned: no memory")
    report = body.report()
    assert (report["pid"], report["up_s"], report["stacks"]) == (None, None, "")
    assert report["exit"] == "cannot be spawned: no memory"


def test_one_that_is_stuck_leaves_one_when_it_is_given_up_and_no_second() -> None:
    body = Body(None, ["m"], hung_after_s=1.0, kill_timeout_s=10.0).serve()
    body.submit()
    body.pass_time(11.0)
    assert body.state(0) is SlotState.FATAL
    body.recorder.died(told.WorkerExited(0, 1, told.Death("did not die of SIGKILL", True)), TRACE, body.now)
    assert [batch["batch"] for batch in body.report()["batches"]] == [1]
    body.die(0, "SIGKILL")
    assert len(body.recorder.deaths()) == 1


def test_the_end_of_a_former_incarnation_is_no_news() -> None:
    body = Body(None, ["m"]).serve()
    body.recorder.died(told.WorkerExited(0, 7, told.Death("SIGSEGV", True)), TRACE, body.now)
    body.recorder.beat(told.WorkerBeat(0, 7, Phase.SERVING, "", ()), body.now)
    assert body.recorder.deaths() == []
    body.die(0)
    assert body.report()["beats"] == []


def test_deaths_before_a_restart_are_listed_after_those_since(tmp_path: Path) -> None:
    for number in range(3):
        body = Body(tmp_path, ["m"]).serve()
        body.shelf.wait_read(10.0)
        for text in (f"pool {number}", f"pool {number} again"):
            body.die(0, text)
            body.pass_time(5.0)
            body.up(0)
        body.shelf.close(10.0)
        time.sleep(0.002)  # the times of death tell them apart, to the millisecond
    told_of = [death["exit"] for death in body.recorder.deaths()]
    assert sorted(told_of) == [f"pool {number}{more}" for number in range(3) for more in ("", " again")]
    assert [text[:6] for text in told_of] == ["pool 2"] * 2 + ["pool 1"] * 2 + ["pool 0"] * 2
    assert [report["exit"] for report in body.recorder.reports(0)] == ["pool 2 again", "pool 2", "pool 1 again"]


def test_what_is_held_in_memory_is_bounded() -> None:
    body = Body(None, ["m"], restart_intensity=1000)
    body.start()
    for _ in range(MOST_DEATHS + 5):
        body.up(0)
        for _ in range(MOST_BEATS + 5):
            body.beat(0, Phase.SERVING, "x" * 10_000)
        body.die(0, "SIGSEGV", last_output=("y" * 4096,) * 200)
        body.pass_time(31.0)
    assert len(body.recorder.reports(0)) == MOST_REPORTS
    assert len(body.recorder.deaths()) == MOST_DEATHS
    report = body.report()
    assert len(report["beats"]) == MOST_BEATS
    assert sum(map(len, report["last_output"])) <= OUTPUT_CHARS
    assert len(report["deaths"]) == MOST_DEATHS
    assert 1 < report["deaths_lately"] <= MOST_DEATHS + 1
    assert len(json.dumps(report)) < 100_000
    incarnations = [each["incarnation"] for each in body.recorder.reports(0)]
    assert incarnations == sorted(incarnations, reverse=True)


@pytest.mark.parametrize("table", [b"", b"\xc1", pack(Table(()))[:-1], b"x" * (LARGEST_TABLE + 1)])
def test_a_table_that_lies_or_is_too_large_is_not_known(table: bytes) -> None:
    body = Body(None, ["m"], table=table).serve()
    body.submit()
    body.die(0)
    assert body.report()["batches"][0]["feeds"] is None


def test_of_a_large_batch_not_all_is_told() -> None:
    headers = (TensorHeader("n" * 1000, "d" * 1000, (1,) * 60, False),) * 20
    body = Body(None, ["m"], table=pack(Table(headers[:15]))).serve()
    body.submit()
    body.die(0)
    feed = body.report()["batches"][0]["feeds"][0]
    assert (len(feed["name"]), len(feed["dtype"]), len(feed["shape"])) == (200, 200, 16)


def test_a_mistake_of_its_own_is_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    body = Body(None, ["m"]).serve()
    monkeypatch.setattr(logging.getLogger("pool"), "propagate", True)
    monkeypatch.setattr(recorder_module, "batches_of", None)
    body.die(0)
    assert "slot 0: no crash report could be made of incarnation 1" in caplog.text
    assert body.state(0) is SlotState.BACKOFF


def test_each_is_a_private_file_and_the_next_pool_tells_of_the_last(tmp_path: Path) -> None:
    body = Body(tmp_path, ["m"], ["m"]).serve()
    body.die(0, "SIGSEGV")
    body.die(1, "SIGBUS")
    body.recorder.shelf.close(10.0)
    assert body.recorder.folder() == str(tmp_path / "crash_reports")
    files = sorted((tmp_path / "crash_reports").iterdir())
    assert [path.name.partition("-slot")[2] for path in files] == ["0-1.json", "1-1.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert json.loads(files[0].read_text()) == body.report(0)
    after = Body(tmp_path, ["m"], ["m"]).serve()
    after.shelf.wait_read(10.0)
    assert [death["exit"] for death in after.recorder.deaths()] == ["SIGBUS", "SIGSEGV"]
    assert after.report(1)["exit"] == "SIGBUS"
    after.die(1, "SIGABRT")
    assert after.report(1)["exit"] == "SIGABRT"
    assert [death["exit"] for death in after.recorder.deaths()] == ["SIGABRT", "SIGBUS", "SIGSEGV"]
    assert not os.path.exists(tmp_path / "quarantine")

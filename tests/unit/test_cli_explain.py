"""`pool explain`: the recent jobs, and one job's history, at every width."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pool.cli import explain as explain_module
from pool.cli.timeline_bar import segments_of
from pool.errors import InvalidInput
from pool.wire.records import JobHistory, JobSummary, Recent
from simulation.driver import Driver
from support import told_pool
from support.commands import in_process


def told_of_a_job() -> tuple[JobHistory, JobSummary]:
    driver = Driver(["efficientnet_v2"]).serve()
    driver.submit("efficientnet_v2", rows=4)
    driver.done(driver.running()[0])
    return told_pool.history(driver, 1), told_pool.recent(driver, []).jobs[0]


TOLD, LINE = told_of_a_job()
ABOUT: dict[str, Any] = {
    "job": 4_100_000_041,
    "client": 12,
    "client_job": 3,
    "signature": "serving_default",
    "priority": 5,
    "device": "gpu:0",
    "timeout_s": 5.0,
    "bytes": 602_112,
    "runs": 2,
}
HEAD = replace(LINE, **ABOUT)
assert TOLD.timeline is not None
TIMELINE = replace(
    TOLD.timeline,
    job=HEAD.job,
    queue_s=0.012,
    feed_s=0.001,
    run_s=0.006,
    fetch_s=0.001,
    batch_rows=32,
    slot=1,
    device="gpu:1",
    attempts=2,
)
STORY = ("0.000 s came", "0.002 s leased to slot 0 incarnation 1, which died: SIGKILL [9]", "0.020 s answered")
NOT_RUN: dict[str, Any] = {"signature": None, "rows": None, "priority": 0, "device": None, "state": "QUEUED", "runs": 0}
NOTHING: dict[str, Any] = {"history": (), "timeline": None}
BARE = replace(HEAD, job=7, **NOT_RUN)


class FakeClient:
    """A pool that remembers one job."""

    jobs: Any = (HEAD, BARE)

    def __init__(self, _endpoint: str | None, *, connect_timeout: float, reconnect_timeout: float) -> None:
        assert connect_timeout < 5
        assert reconnect_timeout == 0, "who looks wants to know now"

    endpoint = "ipc:///a"

    @property
    def pools(self) -> "tuple[FakeClient]":
        return (self,)

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def explain(self, job: int | None = None, *, slot: int | None = None) -> Any:
        assert slot is None
        if job is None:
            return Recent(self.jobs, ())
        for found, more in ((self.jobs[0], {"history": STORY, "timeline": TIMELINE}), (self.jobs[1], NOTHING)):
            if found.job == job:
                return JobHistory(**found.to_dict(), **more)
        raise InvalidInput(f"no job {job} is remembered")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(explain_module, "Client", FakeClient)

    def run(*argv: str, columns: int | None = None) -> str:
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        status, out, err = in_process("explain", *argv)
        assert (status, err) == (0, "")
        return out

    return run


def test_a_story_in_a_pipe(shown: Any) -> None:
    lines = shown(str(HEAD.job)).splitlines()
    assert lines[0] == (
        "job 4100000041: efficientnet_v2 serving_default, 4 rows, 588.0 KiB, priority 5, on gpu:0 only, timeout 5 s,"
        " of client 12: DONE"
    )
    assert lines[2] == "20.00 ms in the pool, 4 of 32 rows run together, slot 1 (gpu:1), attempt 2"
    bars = [line.split()[:-1] if "█" in line else line.split() for line in lines[3:8]]
    assert bars[0] == ["queue", "12.00", "ms", "60.0", "%"]
    assert bars[1] == ["batch", "wait", "0.00", "ms", "0.0", "%"]
    assert bars[3][:5] == ["run", "6.00", "ms", "30.0", "%"]
    assert lines[9:] == [f"  {line}" for line in STORY]


def test_the_bars_are_in_proportion_and_follow_each_other(shown: Any) -> None:
    queue, _, feed, run, fetch = shown(str(HEAD.job)).splitlines()[3:8]
    begin = queue.index("█")
    assert queue.count("█") == pytest.approx(36, abs=1)  # 60 % of 60
    assert run.count("█") == pytest.approx(18, abs=1)
    assert run.index("█") - begin == pytest.approx(39, abs=1)
    assert feed.index("█") - begin == pytest.approx(36, abs=1)
    assert fetch.index("█") - begin == pytest.approx(57, abs=1)
    assert begin + 59 <= len(fetch) <= begin + 60


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_story_keeps_to_its_width(shown: Any, columns: int) -> None:
    output = shown(str(HEAD.job), columns=columns)
    lines = output.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in output
    bars = [line for line in lines if " %" in line]
    assert [line.split(" ms")[0].split()[-1] for line in bars] == ["12.00", "0.00", "1.00", "6.00", "1.00"]
    assert "SIGKILL [9]" in output  # brackets are no markup


def test_a_job_that_has_not_run(shown: Any) -> None:
    assert shown("7").splitlines() == [
        "job 7: efficientnet_v2, 588.0 KiB, timeout 5 s, of client 12: QUEUED",
    ]


def test_the_recent_jobs(shown: Any) -> None:
    lines = [line.split() for line in shown().splitlines()]
    assert lines[0] == ["JOB", "STATE", "MODEL", "ROWS", "SIZE", "PRIORITY", "RUNS", "DEVICE", "CLIENT"]
    assert lines[1][:4] == ["4100000041", "DONE", "efficientnet_v2", "serving_default"]
    assert lines[1][-3:] == ["2", "gpu:0", "12"]
    assert lines[2] == ["7", "QUEUED", "efficientnet_v2", "–", "588.0", "KiB", "0", "0", "–", "12"]


@pytest.mark.parametrize("columns", [60, 80])
def test_the_recent_jobs_on_a_narrow_terminal(shown: Any, columns: int) -> None:
    output = shown(columns=columns)
    assert max(map(len, output.splitlines())) <= columns
    for word in ("4100000041", "DONE", "QUEUED", "efficientnet_v2", "588.0 KiB"):
        assert word in output


def test_no_job_yet(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeClient, "jobs", ())
    assert shown() == "no job yet\n"


def test_as_json_it_is_the_pools_own(shown: Any) -> None:
    assert json.loads(shown("--json")) == {"jobs": [HEAD.to_dict(), BARE.to_dict()], "deaths": []}
    assert json.loads(shown("7", "--json"))["state"] == "QUEUED"


def test_an_unknown_job_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_module, "Client", FakeClient)
    assert in_process("explain", "12") == (1, "", "pool: no job 12 is remembered\n")


def test_segments_are_the_durations_in_order() -> None:
    assert segments_of(TIMELINE.to_dict()) == [
        ("queue", 0.012),
        ("batch wait", 0.0),
        ("feed", 0.001),
        ("run", 0.006),
        ("fetch", 0.001),
    ]


@pytest.mark.parametrize("job", [None, "7"])
def test_what_a_client_named_moves_no_terminal_and_makes_no_line(
    shown: Any, monkeypatch: pytest.MonkeyPatch, job: str | None
) -> None:
    """Eight-bit control characters too, which rich lets through."""
    named = replace(BARE, signature="\x9b2J\x1b[2J\n8 DONE")
    monkeypatch.setattr(FakeClient, "jobs", (HEAD, named))
    output = shown(*([] if job is None else [job]))
    assert "efficientnet_v2 \\x9b2J\\x1b[2J\\n8 DONE" in output
    assert output.replace("\n", "").isprintable()

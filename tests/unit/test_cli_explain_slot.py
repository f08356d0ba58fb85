"""`pool explain slot:N`: what is said of a worker that died, at every width."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pool.cli import explain as explain_module
from pool.core import events as told
from pool.wire.records import Batch, Beat, BusyLane, CrashReport, Death, Feed, Recent, Slot, SlotHistory
from simulation.driver import Driver
from support import told_pool
from support.commands import in_process


def slot_that_died(number: int) -> Slot:
    """It has an eighth worker now, for 75 s."""
    driver = Driver(["digits"], ["digits"]).serve()
    driver.die(number)
    driver.pass_time(1.0)
    driver.up(number)
    driver.feed(told.WorkerSpawned(number, 2, 4243))
    driver.now += 75.0
    return replace(told_pool.slot(driver, number), incarnation=8)


BATCH = Batch(
    batch=12,
    lane=0,
    model="digits",
    signature="predict",
    age_s=61.23,
    rows=3,
    fed_rows=8,
    suspect=True,
    jobs=(81, 82),
    jobs_in_all=3,
    feeds=(Feed("pixels", "float32", (8, 64)), Feed("", "string", ())),
)
HANG = CrashReport(
    format=5,
    pool="1.0",
    instance="00",
    endpoint="ipc:///p.sock",
    slot=1,
    incarnation=7,
    device="gpu:1",
    pid=4242,
    died_at="2026-01-31T09:15:02.417+01:00",
    up_s=11_400.0,
    exit="SIGKILL",
    killed_for="has run batch 12 of digits for 61.2 s ([health] hung_after)",
    state="READY",
    state_s=11_390.0,
    phase="serving",
    detail="",
    phase_s=11_390.0,
    models=("digits",),
    batches=(BATCH,),
    states=(),
    beats=(Beat(0.4, "serving", "", (BusyLane(0, 12, 60.8),)),),
    deaths_lately=2,
    deaths=(),
    last_output=("a line [with brackets]", "\x1b[31mred\x1b[0m"),
    stacks='Thread 0x00 (most recent call first):\n  File "x.py", line 3 in stuck',
    threads=("3 × python: sleeping in futex_do_wait",),
    note="",
)
CRASH = replace(
    HANG,
    incarnation=6,
    exit="SIGSEGV",
    killed_for=None,
    state="LOADING",
    state_s=5.25,
    phase="loading",
    detail="digits",
    phase_s=2.0,
    batches=(replace(BATCH, rows=None, fed_rows=None, suspect=False, jobs_in_all=2, feeds=None),),
    beats=(),
    deaths_lately=1,
    last_output=(),
    stacks="",
    threads=(),
    note="no stacks came within 0.3 s",
)
DEATHS = tuple(
    Death(each.slot, each.incarnation, each.device, each.died_at, each.exit, each.killed_for) for each in (HANG, CRASH)
)


class FakeClient:
    """A pool in which a worker of slot 1 has died twice, and none of slot 0."""

    reports: Any = (HANG, CRASH)
    folder: str | None = "/state/crash_reports"

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
        if slot is None:
            assert job is None
            return Recent((), DEATHS)
        return SlotHistory(slot_that_died(slot), tuple(self.reports) if slot else (), self.folder)


@pytest.fixture(autouse=True)
def nine_hours_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The zone of this machine: the log has its times, and so has what is shown here."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "XXX-9")
        time.tzset()
        yield
    time.tzset()


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


def test_a_hung_worker_in_a_pipe(shown: Any) -> None:
    assert shown("slot:1").splitlines() == [
        "slot 1 gpu:1, incarnation 7, pid 4242: killed by the pool because it has run batch 12 of digits for 61.2 s"
        " ([health] hung_after)",
        "  died 2026-01-31 17:15:02, after 3 h 10 min; it had been READY for 3 h 9 min",
        "  the 2nd death in this slot within an hour",
        "  slot 1 is now READY for 1 min 15 s: incarnation 8, pid 4243, idle",
        "",
        "lane 0 had run batch 12 of digits predict for 61.2 s, 3 rows (fed as 8): 3 jobs (81, 82, …), alone because it"
        " had killed a worker before",
        "  pixels  float32 [8, 64]",
        "  its only input  string []",
        "",
        "stacks",
        "  Thread 0x00 (most recent call first):",
        '    File "x.py", line 3 in stuck',
        "",
        "its threads, as the kernel saw them",
        "  3 × python: sleeping in futex_do_wait",
        "",
        "its last beats",
        "  0.4 s earlier: serving; lane 0 batch 12 for 60.8 s",
        "",
        "its last output",
        "  a line [with brackets]",
        "  red",
        "",
        "before that",
        "  incarnation 6, 2026-01-31 17:15:02: SIGSEGV",
        "",
        "all crash reports: /state/crash_reports",
    ]


def test_a_crash_while_loading(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeClient, "reports", (CRASH,))
    monkeypatch.setattr(FakeClient, "folder", None)
    assert shown("slot:1").splitlines() == [
        "slot 1 gpu:1, incarnation 6, pid 4242: SIGSEGV",
        "  died 2026-01-31 17:15:02, after 3 h 10 min; it had been LOADING for 5.2 s, loading digits for 2.0 s",
        "  slot 1 is now READY for 1 min 15 s: incarnation 8, pid 4243, idle",
        "",
        "lane 0 had run batch 12 of digits predict for 61.2 s: 2 jobs (81, 82)",
        "  its inputs are not known",
        "",
        "stacks",
        "  no stacks came within 0.3 s",
    ]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_it_keeps_to_its_width(shown: Any, columns: int) -> None:
    lines = shown("slot:1", columns=columns).splitlines()
    assert max(map(len, lines)) <= columns


def test_a_slot_without_deaths(shown: Any) -> None:
    assert shown("slot:0").splitlines() == [
        "slot 0 is now READY for 1 min 15 s: incarnation 8, pid 4243, idle",
        "no worker of this slot has died",
    ]


def test_the_recent_deaths_stand_below_the_jobs(shown: Any) -> None:
    lines = shown().splitlines()
    assert lines[:2] == ["no job yet", ""]
    assert lines[2].split() == ["DIED", "SLOT", "DEVICE", "INC.", "WHY"]
    assert lines[3].split()[:6] == ["2026-01-31", "17:15:02", "slot:1", "gpu:1", "7", "killed"]
    assert lines[4].split()[4:] == ["6", "SIGSEGV"]


def test_as_json_it_is_the_pools_own(shown: Any) -> None:
    assert json.loads(shown("slot:1", "--json"))["crash_reports"] == [HANG.to_dict(), CRASH.to_dict()]


@pytest.mark.parametrize("what", ["slot:", "slot:-1", "slot:x", "gpu:0", "-1", "slot:1 ", "²", "9" * 30])
def test_what_is_neither_a_job_nor_a_slot_is_refused(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_module, "Client", None)
    status, _, err = in_process("explain", "--", what)
    assert status == 2
    assert err.splitlines()[-1].endswith(" is neither a job number nor a slot; write a number such as 7, or worker 0")

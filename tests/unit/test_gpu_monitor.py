"""The pool's end of the process that listens to the driver."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pool.clock.alarms import Alarms
from pool.devices import Device, GpuMonitor, Reading
from pool.devices.gpu_monitor import STALE_S, UNREAD
from pool.devices.xid import MEANINGS
from pool.loop.loop import Loop
from pool.loop.watch import Watch
from support.fake_nvml import CARD, GIB, OTHER, FakeNvml
from support.processes import children, eventually

DEVICES = [Device("gpu", (uuid,), f"gpu:{number}", "a card", None) for number, uuid in enumerate((CARD, OTHER))]


@pytest.fixture
def environ(nvml: FakeNvml) -> dict[str, str]:
    """Of the process that listens."""
    return {**os.environ, **nvml.environ}


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop(Watch(), Alarms())
    yield loop
    loop.close()


def turning(loop: Loop, what: Callable[[], bool]) -> Callable[[], bool]:
    """For `eventually`: the loop turns while it is waited for."""
    soon = loop.alarm(lambda: None)

    def looks() -> bool:
        soon.by(time.monotonic() + 0.05)
        loop.turn()
        return what()

    return looks


def test_an_error_is_told_of_the_slot_whose_gpu_has_it(
    loop: Loop, nvml: FakeNvml, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    monitor = GpuMonitor(DEVICES, environ, loop)
    nvml.say(CARD, xid=31)
    eventually(turning(loop, lambda: bool(monitor.error_of(0))))
    told = rf"Xid 31, \d+ s earlier: {re.escape(MEANINGS[31])}"  # the older, the longer this takes
    assert re.fullmatch(told, monitor.error_of(0))
    assert monitor.error_of(1) == ""
    (message,) = caplog.messages
    assert re.fullmatch(f"slot 0: the driver says of its GPU: {told}", message)
    monitor.close()


def test_how_each_gpu_is_used_is_told_until_the_driver_does_not_answer(
    loop: Loop, nvml: FakeNvml, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml.say(CARD, used=3 * GIB, utilization=87, temperature=61)
    nvml.say(OTHER, used=GIB, no_memory="Unknown Error")
    both = [Device("gpu", (CARD, OTHER), "gpu:0,1", "two cards", None)]
    monitor = GpuMonitor(both, environ, loop)
    read = [Reading(3 * GIB, 16 * GIB, 0.87, 61), Reading(None, None, 0.0, 30)]
    eventually(turning(loop, lambda: monitor.readings(0) == read))
    nvml.say(CARD, hang_s=3600)
    eventually(turning(loop, nvml.hangs))
    monkeypatch.setattr("pool.devices.gpu_monitor.STALE_S", 0.5)
    eventually(turning(loop, lambda: monitor.readings(0)[0] == UNREAD))
    monkeypatch.setattr("pool.devices.gpu_monitor.STALE_S", STALE_S)
    assert monitor.readings(0) == read, "it is not forgotten, only too old"
    monitor.close()


def test_it_is_started_again_and_ends_with_the_pool_while_the_driver_hangs(
    loop: Loop, nvml: FakeNvml, environ: dict[str, str]
) -> None:
    before = set(children(os.getpid()))
    monitor = GpuMonitor(DEVICES, environ, loop)
    [first] = set(children(os.getpid())) - before
    os.kill(first, 9)
    eventually(turning(loop, lambda: bool(set(children(os.getpid())) - before - {first})))
    nvml.say(CARD, hang_s=3600)
    eventually(turning(loop, nvml.hangs))
    monitor.close()
    assert set(children(os.getpid())) <= before


def test_without_a_gpu_nobody_listens(loop: Loop) -> None:
    before = children(os.getpid())
    GpuMonitor([Device("cpu", (), "cpu:0", "cores", None)], os.environ, loop).close()
    silent = GpuMonitor(DEVICES, os.environ, loop, asks_nvml=False)
    assert silent.readings(1) == [UNREAD]
    silent.close()
    assert set(children(os.getpid())) <= set(before), "of the others, some may be over"


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        "7",
        f'["error", "{OTHER}x", 1, 2]',
        f'["error", "{CARD}", 1, {{}}]',
        f'["error", "{CARD}", 1e999, 1]',
        f'["error", "{CARD}", 1, NaN]',
        f'["error", "{CARD}", 1, {"9" * 400}]',
        f'["error", "{CARD}", 1]',
        f'["reading", "{CARD}", 1, 2, 3]',
        f'["reading", "{CARD}", 1, 2, 0.5, "hot"]',
        f'["reading", "{CARD}", -1, 2, 0.5, 40]',
        f'["reading", "{CARD}", 1, NaN, 0.5, 40]',
        f'["reading", "{CARD}", 1, {"9" * 40}, 0.5, 40]',
        f'["reading", "{CARD}", true, 2, 0.5, 40]',
        "[" * 99999,
        "no end of a line" * 9999,
    ],
)
def test_one_that_says_what_is_no_report_is_started_anew(
    loop: Loop, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    liar = tmp_path / "python"
    log = str(tmp_path / "log")
    lines = ["import sys", f"print({line!r}, flush=True)", f"open({log!r}, 'a').write('.')", "sys.stdin.read()"]
    liar.write_text("\n".join([f"#!{sys.executable}", *lines]))
    liar.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(liar))
    monkeypatch.setattr("pool.devices.gpu_monitor.AGAIN_S", 0.01)
    monitor = GpuMonitor(DEVICES, os.environ, loop)
    eventually(turning(loop, lambda: (tmp_path / "log").exists() and len((tmp_path / "log").read_text()) > 1))
    assert monitor.error_of(0) == ""
    assert monitor.readings(0) == [UNREAD]
    monitor.close()


def test_a_report_of_long_ago_is_kept_and_not_said_again(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line = json.dumps(["error", CARD, 79, time.monotonic() - 300])
    once = tmp_path / "python"
    once.write_text(f"#!{sys.executable}\nimport sys\nprint({line!r}, flush=True)\nsys.stdin.read()")
    once.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(once))
    monitor = GpuMonitor(DEVICES, os.environ, loop)
    eventually(turning(loop, lambda: bool(monitor.error_of(0))))
    assert monitor.error_of(0).startswith("Xid 79, 5 min earlier")
    assert caplog.messages == []
    monitor.close()

"""The pool's end of the process that listens to the driver."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import children, eventually
from pool.clock.alarms import Alarms
from pool.devices import Device
from pool.devices.reports import Reports
from pool.devices.xid import MEANINGS
from pool.loop.loop import Loop
from pool.loop.watch import Watch

FAKES = Path(__file__).parents[1] / "fakes"
CARD, OTHER = (f"GPU-{bus}000000-0000-4000-8000-000000000000" for bus in ("1a", "1b"))
DEVICES = [Device("gpu", (uuid,), f"gpu:{number}", "a card", None) for number, uuid in enumerate((CARD, OTHER))]

Say = Callable[..., None]


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop(Watch(), Alarms())
    yield loop
    loop.close()


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Say:
    path = tmp_path / "nvml.json"
    monkeypatch.setenv("FAKE_NVML_STATE", str(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FAKES), str(FAKES.parents[1])]))

    def say(**state: object) -> None:
        path.with_suffix(".new").write_text(json.dumps({CARD: state}))
        os.replace(path.with_suffix(".new"), path)

    say()
    return say


def turning(loop: Loop, what: Callable[[], bool]) -> Callable[[], bool]:
    """For `eventually`: the loop turns while it is waited for."""
    soon = loop.alarm(lambda: None)

    def looks() -> bool:
        soon.by(time.monotonic() + 0.05)
        loop.turn()
        return what()

    return looks


def test_an_error_is_told_of_the_slot_whose_gpu_has_it(loop: Loop, say: Say, caplog: pytest.LogCaptureFixture) -> None:
    reports = Reports(DEVICES, os.environ, loop)
    say(xid=31)
    eventually(turning(loop, lambda: bool(reports.of(0))))
    assert reports.of(0) == f"Xid 31, 0 s earlier: {MEANINGS[31]}"
    assert reports.of(1) == ""
    assert caplog.messages == [f"slot 0: the driver says of its GPU: {reports.of(0)}"]
    reports.close()


def test_it_is_started_again_and_ends_with_the_pool_while_the_driver_hangs(loop: Loop, say: Say) -> None:
    before = set(children(os.getpid()))
    reports = Reports(DEVICES, os.environ, loop)
    [first] = set(children(os.getpid())) - before
    os.kill(first, 9)
    eventually(turning(loop, lambda: bool(set(children(os.getpid())) - before - {first})))
    say(hang_s=3600)
    eventually(turning(loop, Path(os.environ["FAKE_NVML_STATE"]).with_suffix(".hangs").exists))
    reports.close()
    assert set(children(os.getpid())) == before


def test_without_a_gpu_nobody_listens(loop: Loop) -> None:
    before = children(os.getpid())
    Reports([Device("cpu", (), "cpu:0", "cores", None)], os.environ, loop).close()
    assert children(os.getpid()) == before


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        "7",
        f'["{OTHER}x", 1, 2]',
        f'["{CARD}", 1, {{}}]',
        f'["{CARD}", 1e999, 1]',
        f'["{CARD}", 1, NaN]',
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
    reports = Reports(DEVICES, os.environ, loop)
    eventually(turning(loop, lambda: (tmp_path / "log").exists() and len((tmp_path / "log").read_text()) > 1))
    assert reports.of(0) == ""
    reports.close()


def test_a_report_of_long_ago_is_kept_and_not_said_again(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line = json.dumps([CARD, 79, time.monotonic() - 300])
    once = tmp_path / "python"
    once.write_text(f"#!{sys.executable}\nimport sys\nprint({line!r}, flush=True)\nsys.stdin.read()")
    once.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(once))
    reports = Reports(DEVICES, os.environ, loop)
    eventually(turning(loop, lambda: bool(reports.of(0))))
    assert reports.of(0).startswith("Xid 79, 5 min earlier")
    assert caplog.messages == []
    reports.close()

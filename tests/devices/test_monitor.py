import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pool.devices import monitor as module
from pool.devices.monitor import Level, Monitor
from support.pools import are_gone, until

A, B = "GPU-a", "GPU-b"
USED = {"uuid": A, "memory": 16 << 30, "used": 3 << 30, "utilization": 71, "temperature": 64}

Told = Callable[..., None]


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Monitor]:
    monkeypatch.setattr(module, "READ_S", 0.02)
    made = Monitor()
    yield made
    made.close()


def hears(monitor: Monitor, condition: Callable[[], object]) -> None:
    def heard() -> object:
        monitor.read(time.monotonic())
        return condition()

    until(heard, "the monitor's word")


def pid(monitor: Monitor) -> int:
    (found,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return int(found)


def test_it_knows_what_each_gpu_does(told: Told, monitor: Monitor) -> None:
    instance = {"uuid": "MIG-1", "memory": 5 << 30, "used": 1 << 30, "processes": {"9": 1 << 30}}
    told(USED | {"processes": {"7": 2 << 30, "8": None}}, {"uuid": B, "instances": [None, instance]})
    listed, trouble = monitor.start(os.environ)
    assert ([gpu["uuid"] for gpu in listed], trouble) == ([A, B], "")
    assert monitor.gpus == {A: Level(3 << 30, 16 << 30), B: Level(None, None), "MIG-1": Level(1 << 30, 5 << 30)}
    hears(monitor, lambda: monitor.gpus[A].heard_at and monitor.gpus["MIG-1"].pids)
    level = monitor.gpus[A]
    assert (level.used_bytes, level.total_bytes, level.utilization, level.temperature) == (3 << 30, 16 << 30, 71, 64)
    assert (level.pids, monitor.gpus["MIG-1"].pids) == ({7: 2 << 30, 8: None}, {9: 1 << 30})
    told(USED)
    hears(monitor, lambda: monitor.gpus[A].pids == {})
    assert set(monitor.seen_pids) == {7, 8, 9}


@pytest.mark.parametrize("error", [15, 16, 6])
def test_a_gpu_is_lost_after_nvml_has_said_so_for_a_while(told: Told, monitor: Monitor, error: int) -> None:
    told(USED, {"uuid": B})
    monitor.start(os.environ)
    told(USED | {"lost": 3}, {"uuid": B, "lost": error})
    hears(monitor, lambda: monitor.gpus[B].lost_since)
    since = monitor.gpus[B].lost_since
    hears(monitor, lambda: monitor.gpus[B].heard_at > since)
    assert monitor.lost(since + 4.99) == set()
    assert monitor.lost(since + 5) == {B}
    assert monitor.gpus[A].lost_since is None  # NVML does not say that it is gone
    told(USED, {"uuid": B})
    hears(monitor, lambda: monitor.gpus[B].lost_since is None)
    assert monitor.lost(since + 5) == set()


def test_a_gpu_that_hangs_silences_no_other(told: Told, monitor: Monitor) -> None:
    told(USED, {"uuid": B})
    monitor.start(os.environ)
    told(USED | {"hangs": True}, {"uuid": B, "temperature": 50})
    hears(monitor, lambda: monitor.gpus[B].temperature == 50)
    since = monitor.gpus[B].heard_at
    told(USED, {"uuid": B, "temperature": 51})
    hears(monitor, lambda: monitor.gpus[B].temperature == 51)
    assert monitor.gpus[A].heard_at <= since  # its last word may have come with the first one of the other


def test_it_asks_again_after_a_pause_and_still_knows_of_a_lost_gpu(
    told: Told, monitor: Monitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(USED, {"uuid": B})
    monitor.start(os.environ)
    told(USED, {"uuid": B, "lost": 15})
    old = pid(monitor)
    os.kill(old, signal.SIGKILL)
    hears(monitor, lambda: monitor.gpus == {})
    now = time.monotonic()
    monitor.read(now)
    assert are_gone(old)
    monitor.read(now + 1.1)  # the pause is over
    hears(monitor, lambda: B in monitor.gpus and monitor.gpus[B].lost_since)  # NVML lists it no more
    monkeypatch.setattr(module, "NVML_S", 0.1)
    os.kill(pid(monitor), signal.SIGSTOP)
    hears(monitor, lambda: monitor.gpus == {})


LIST = json.dumps([[{"uuid": A, "used_bytes": 1, "memory_bytes": 2, "instances": None}], ""])
FACTS = {"used_bytes": 1, "total_bytes": 2, "utilization": 0, "temperature": 3, "processes": {}, "lost": False}


JUNK = ["print('x')", "print('[' * 50000)", "print('9' * 50000)", "print('null')", "while True: print('xy', end='')"]
WRONG = [{B: FACTS}, {A: []}, {A: FACTS | {"used_bytes": "x"}}, {A: FACTS | {"processes": {"x": 1}}}]


@pytest.mark.parametrize("junk", [*JUNK, *(f"print({json.dumps(wrong)!r})" for wrong in WRONG)])
def test_junk_costs_the_process_that_says_it(
    tmp_path: Path, monitor: Monitor, monkeypatch: pytest.MonkeyPatch, junk: str
) -> None:
    gate = f"while not os.path.exists({str(tmp_path / 'gate')!r}): time.sleep(0.01)"
    script = f"import os, sys, time\n{gate}\n{junk}\nsys.stdout.flush(); time.sleep(60)"
    monkeypatch.setattr(module, "ARGV", [sys.executable, "-c", f"print({LIST!r}, flush=True)\n{script}"])
    assert monitor.start({})[0][0]["uuid"] == A
    (tmp_path / "gate").touch()
    hears(monitor, lambda: monitor.gpus == {})
    monkeypatch.setattr(module, "ARGV", [sys.executable, "-c", script])
    listed, trouble = Monitor().start({})
    assert not listed
    assert trouble.startswith("NVML ")

"""The parent's side alone: whatever a process in the gateway's place does, the loop goes on and it ends."""

import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from pool.clock import Alarms
from pool.loop import Loop, Watch
from pool.processes.gateways import CannotListen, Gateways, address_of, listen
from pool.processes.gateways.life import Pace
from pool.processes.output import LINES_A_SECOND
from pool.wire.gateway import GatewaySettings
from support.processes import alive, eventually

pytestmark = pytest.mark.gateway

PACE = Pace(start_s=5.0, silent_s=1.0, first_pause_s=0.05, longest_pause_s=0.1)
SETTINGS = GatewaySettings((), "127.0.0.1:0", drain_timeout_s=1.0)

BEGIN = f"""#!{sys.executable}
import os, signal, socket, sys, threading, time
given = dict(zip(sys.argv[4::2], sys.argv[5::2]))
link = socket.socket(fileno=int(given["--link-fd"]))
"""
IN_ITS_PLACE = {
    "says more than it is asked": 'while True: link.send(b"x" * 65536)',
    "hangs up and lives on": 'link.send(b"."); link.close(); time.sleep(3600)',
    "prints without end": 'link.send(b"."); [print("x" * 9999) for _ in iter(int, 1)]',
    "says nothing at all": "time.sleep(3600)",
    "does not want to end": "signal.signal(15, signal.SIG_IGN)\nwhile True: link.send(b'.'); time.sleep(0.1)",
    "ends at once": "sys.exit('no')",
}


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop(Watch(), Alarms())
    yield loop
    loop.close()


def waits(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a turn waits for nobody")


def turning(loop: Loop, what: Callable[[], bool]) -> Callable[[], bool]:
    """For `eventually`: the loop turns while it is waited for.

    No clock judges a turn, which may be held up on a busy machine: nothing in it may wait for a process or for time.
    Nor for a descriptor: what is there ends at the test's order alone, so such a turn would never end.
    """
    soon = loop.alarm(lambda: None)

    def looks() -> bool:
        soon.by(time.monotonic() + 0.05)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess.Popen, "wait", waits)
            patch.setattr(time, "sleep", waits)
            loop.turn()
        return what()

    return looks


@pytest.fixture
def gateways(
    request: pytest.FixtureRequest, loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Gateways]:
    program = tmp_path / "python"
    program.write_text(f"{BEGIN}open({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}} ')\n{request.param}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    gateways = Gateways(SETTINGS, listen("127.0.0.1:0"), os.environ, loop, pace=PACE)
    gateways.start()
    yield gateways
    gateways.close(0.1)
    eventually(lambda: not any(map(alive, pids(tmp_path))))  # the kernel may hold one for a while that is killed


def pids(folder: Path) -> list[int]:
    file = folder / "pids"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


@pytest.mark.parametrize("gateways", IN_ITS_PLACE.values(), ids=IN_ITS_PLACE.keys(), indirect=True)
def test_whatever_is_in_its_place_is_tended_and_ends(gateways: Gateways, loop: Loop, tmp_path: Path) -> None:
    eventually(turning(loop, lambda: bool(pids(tmp_path))))
    began = time.monotonic()
    eventually(turning(loop, lambda: time.monotonic() > began + 1.5))
    assert len(gateways.status()["processes"]) == 1
    gone: list[bool] = []
    gateways.stop(lambda: gone.append(True))
    eventually(turning(loop, lambda: bool(gone)), saw=gateways.status)
    assert gateways.status()["processes"][0]["state"] == "STOPPED"
    assert not any(map(alive, pids(tmp_path)))


@pytest.mark.parametrize(
    "gateways", [IN_ITS_PLACE["hangs up and lives on"], IN_ITS_PLACE["ends at once"]], indirect=True
)
def test_one_that_does_not_serve_is_followed_by_another(gateways: Gateways, loop: Loop, tmp_path: Path) -> None:
    eventually(turning(loop, lambda: len(pids(tmp_path)) >= 3), saw=gateways.status)
    assert gateways.status()["processes"][0]["restarts"] >= 2


@pytest.mark.parametrize("gateways", [IN_ITS_PLACE["prints without end"]], indirect=True)
def test_the_log_takes_as_many_lines_a_second_as_of_a_worker(
    gateways: Gateways, loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first = int(time.monotonic())
    eventually(turning(loop, lambda: "more lines" in caplog.text))
    # Not each second has lines that were dropped. One that follows begins anew, beside the last lines of its former.
    seconds = int(time.monotonic()) - first + 1 + 2 * gateways.status()["processes"][0]["restarts"]
    assert caplog.messages.count(f"gateway 0 | {'x' * 4096}") <= LINES_A_SECOND * seconds
    assert pids(tmp_path)
    assert gateways.status()["url"].startswith("http://127.0.0.1:")


def test_a_process_that_cannot_be_had_is_tried_again(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    gateways = Gateways(SETTINGS, listen("127.0.0.1:0"), os.environ, loop, pace=PACE)
    gc.collect()  # what other tests have left goes now, and not meanwhile
    before = len(os.listdir("/proc/self/fd"))
    gateways.start()
    eventually(turning(loop, lambda: gateways.status()["processes"][0]["restarts"] >= 3))
    assert "cannot be spawned: " in gateways.status()["processes"][0]["reason"]
    assert len(os.listdir("/proc/self/fd")) <= before, "nothing of a try is left"
    gateways.close(0.0)


# --- its socket


@pytest.mark.parametrize("place", ["127.0.0.1:0", "[::1]:0"])
def test_a_socket_says_where_it_is_and_waits_for_nobody(place: str) -> None:
    with listen(place) as listener:
        host, _, port = address_of(listener).rpartition(":")
        assert place.startswith(host)
        assert int(port) > 0
        with pytest.raises(BlockingIOError):
            listener.accept()
        with pytest.raises(CannotListen, match="another program uses this port; end it, or write another port"):
            listen(address_of(listener))


def test_a_port_can_be_had_again_at_once() -> None:
    listener = listen("127.0.0.1:0")
    place = address_of(listener)
    with socket.create_connection(listener.getsockname()):
        listener.accept()[0].close()
    listener.close()
    listen(place).close()

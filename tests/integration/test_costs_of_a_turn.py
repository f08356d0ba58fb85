"""What an empty turn of the pool's loop costs, in calls: as much with one slot, model or client as with many.

The pool runs in this thread, which counts what it calls; another one rings, as those do that write to the disk.
"""

import contextlib
import os
import select
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
import zmq

import pool.processes.supervisor
from pool.config import parse_settings
from pool.core.actions import PoolStopped
from pool.loop.loop import Loop
from pool.loop.watch import Source, Watch
from pool.plan import version_watch, versions
from pool.plan.planning import make_plan
from pool.processes.launch import Launch
from pool.serve.service import Service
from pool.systemd.notify import Notifier
from pool.wire import client_messages as wire
from pool.wire.frames import NO_INSTANCE, decode, encode
from pool.wire.versions import versions_in as whole
from support.fake_nvml import eight_gpus
from support.processes import eventually

RINGS = 20
TURN, RUNG = Loop.turn.__code__, Service._let_go.__code__


class Turns:
    """The calls of each turn, Python's and C's, in which the bell was heard."""

    def __init__(self) -> None:
        self.rung: list[int] = []
        self._calls = 0
        self._is_rung = False

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is TURN:
            if self._is_rung:
                self.rung.append(self._calls)
            self._calls, self._is_rung = 0, False
        elif event == "call" and frame.f_code is RUNG:
            self._is_rung = True
        self._calls += event in ("call", "c_call")


def connected(context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str) -> "zmq.Socket[bytes]":
    """A client that has opened."""
    dealer = context.socket(zmq.DEALER)
    dealer.linger = 0
    dealer.rcvtimeo = 20_000
    dealer.connect(endpoint)
    dealer.send_multipart(encode(wire.Open("a test"), NO_INSTANCE))
    assert isinstance(decode(wire.CLIENT_MESSAGES, dealer.recv_multipart()).message, wire.Opened)
    return dealer


def ring(service: Service, endpoint: str, clients: int) -> None:
    """While so many are connected, and say nothing."""
    eventually(lambda: Path(endpoint.removeprefix("ipc://")).exists())
    with zmq.Context() as context, contextlib.ExitStack() as stack:
        for _ in range(clients):
            stack.enter_context(connected(context, endpoint))
        for _ in range(RINGS):
            service._written.ring()
            eventually(lambda: not select.select([service._written.fd], [], [], 0)[0])


def run(folder: Path, slots: int, several: list[dict[str, object]], drive: Callable[[Service, str], None]) -> None:
    """A pool in this thread until the other, which drives it, is done. Each model is in each slot."""
    endpoint = f"ipc://{folder}/socket"
    several = [{**model, "replicas": slots} for model in several]
    data = {"pool": {"devices": ["cpu"] * slots, "endpoint": endpoint, "watch": "100ms"}, "model": several}
    plan = make_plan(parse_settings(data, "f.toml", folder), {}, eight_gpus())
    assert [len(share.models) for share in plan.shares] == [len(several)] * slots
    service = Service(plan, {**os.environ, "XDG_STATE_HOME": str(folder)}, lambda *_: None, Notifier.of_nobody())
    reader, writer = os.pipe()

    def main() -> None:
        try:
            drive(service, endpoint)
        finally:
            os.close(writer)  # which ends the pool

    driver = threading.Thread(target=main)
    driver.start()
    try:
        ended = service.run(reader)
    finally:
        driver.join()
        os.close(reader)
    assert isinstance(ended, PoolStopped)


def cost(folder: Path, slots: int, models: int, clients: int) -> int:
    """At the least, for now and then a client's connection, or a timer, falls into one."""
    several: list[dict[str, object]] = [{"name": f"m{number}", "path": "stub:echo"} for number in range(models)]
    turns = Turns()
    before = sys.getprofile()
    sys.setprofile(turns.note)
    try:
        run(folder, slots, several, lambda service, endpoint: ring(service, endpoint, clients))
    finally:
        sys.setprofile(before)
    assert len(turns.rung) == RINGS
    return min(turns.rung)


@pytest.fixture
def _silent_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They never say anything."""

    def launch(**_: object) -> Launch:
        return Launch(("sleep", "600"), dict(os.environ))

    monkeypatch.setattr(pool.processes.supervisor, "worker_launch", launch)


@pytest.mark.usefixtures("_silent_workers")
def test_an_empty_turn_costs_the_same_whatever_there_is(tmp_path: Path) -> None:
    found = {}
    for slots, models, clients in ((1, 1, 0), (64, 1, 0), (1, 20, 0), (1, 1, 50)):
        folder = tmp_path / f"{slots}-{models}-{clients}"
        folder.mkdir()
        found[slots, models, clients] = cost(folder, slots, models, clients)
    assert len(set(found.values())) == 1, found
    assert 5 < min(found.values()) < 20, found


@pytest.mark.usefixtures("_silent_workers")
@pytest.mark.parametrize("slots", [1, 16])
def test_nothing_is_looked_at_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: int) -> None:
    """The models' folders are looked at every tenth of a second, and the disk does not answer: the loop is idle."""
    looks, answers = threading.Event(), threading.Event()
    waits: list[float] = []
    wait = Watch.wait

    def versions_in(folder: Path) -> object:
        if threading.current_thread().name == "versions":
            looks.set()
            assert answers.wait(60)
        return whole(folder)

    def noted(self: Watch, seconds: float) -> list[Source]:
        waits.append(seconds)
        return wait(self, seconds)

    def drive(service: Service, endpoint: str) -> None:
        assert looks.wait(60)
        ring(service, endpoint, 0)  # once round, for what the beginning has left
        waits.clear()
        ring(service, endpoint, 0)
        idle.extend(waits)
        answers.set()

    idle: list[float] = []
    monkeypatch.setattr(version_watch, "SLOW_S", 3600.0)  # or on a slow machine the rings could come just before that
    monkeypatch.setattr(versions, "versions_in", versions_in)
    monkeypatch.setattr(Watch, "wait", noted)
    folder = tmp_path / "model"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "saved_model.pb").write_text("echo")
    run(tmp_path, slots, [{"name": "m", "path": f"stub:files?{folder}"}], drive)
    assert RINGS - 1 <= len(idle) <= RINGS + 1, "one turn for each ring, and none by the clock"
    assert min(idle) > 1.0, "the next is due when the disk has said nothing for long"

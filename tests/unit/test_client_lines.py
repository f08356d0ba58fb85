"""Ctrl-C, and a fork, at every line of the client that `run`, `submit` and `map` pass: each lasts for one call alone.

A line is one of the client's own modules; what others read there, and lent memory, is not looked at.
"""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client import outage
from pool.client.sources import Sources
from pool.wire import client_messages as wire
from support.asked import Asked
from support.at_line import AtLine, interrupt
from support.fake_pool import Serving
from support.processes import eventually

STEP = 13  # of all lines, in the usual run
FORK_STEP = 37  # a process each
AT_EACH = pytest.param(1, marks=[pytest.mark.interrupts, pytest.mark.timeout(900)])


class Ledger(Serving):
    """Answers each input with its double, and knows which jobs it has that it was not told to forget."""

    def __init__(self, folder: Path) -> None:
        self.held: dict[tuple[bytes, int], bytes] = {}
        super().__init__(folder, self._double)

    def _double(self, submit: Asked, inputs: dict[str, Any]) -> Any:
        values = inputs[""]
        if values.flat[0] < 0:
            self.held[self.client, submit.job] = self.client
            return None
        return {"y": values * 2}

    def next(self, timeout_s: float = 5.0) -> Any:
        message = super().next(timeout_s)
        match message:
            case wire.Cancel(job):
                self.held.pop((self.client, job), None)
            case wire.Close():
                self.held = {key: client for key, client in self.held.items() if client != self.client}
        return message


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setattr(outage, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(outage, "STEADY_S", 0.0)
    pool = Ledger(tmp_path)
    yield pool
    pool.close()


def one(value: float) -> "np.ndarray[Any, Any]":
    return np.array([value], np.float32)


def run(client: Client, value: float) -> list[float]:
    return [float(client.run("m", one(value))["y"][0])]


def submit(client: Client, value: float) -> list[float]:
    given = [client.submit("m", one(value + n)) for n in range(3)]
    return [float(future.result(10)["y"][0]) for future in given]


def mapped(client: Client, value: float) -> list[float]:
    return [float(answer["y"][0]) for answer in client.map("m", (one(value + n) for n in range(6)), in_flight=2)]


Way = Callable[[Client, float], list[float]]
WAYS = [run, submit, mapped]


def doubled(way: Way, value: float) -> list[float]:
    return [2 * (value + n) for n in range({run: 1, submit: 3, mapped: 6}[way])]  # type: ignore[index]  # one of WAYS


class Beside:
    """Another thread that runs jobs of the same client all the time, and looks at each answer."""

    def __init__(self, client: Client) -> None:
        self.count = 0
        self.failed: BaseException | None = None
        self._client = client
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def _main(self) -> None:
        try:
            while not self._over.is_set():
                assert run(self._client, 1e6 + self.count) == [2 * (1e6 + self.count)]
                self.count += 1
                time.sleep(0.002)  # the interrupted one is to be alone now and then
        except BaseException as error:
            self.failed = error

    def end(self) -> None:
        self._over.set()
        self._thread.join(10)
        assert self.failed is None
        assert self.count, "it has done nothing"


def is_empty(client: Client) -> bool:
    assert client._connection is not None
    dialogue = client._connection._dialogue
    return not len(dialogue.jobs) and not dialogue._outbox


def left(client: Client, trace: "AtLine") -> str:
    assert client._connection is not None
    dialogue = client._connection._dialogue
    return f"{trace.where}: {list(dialogue.jobs)}, {dialogue._outbox}"


@pytest.mark.parametrize("step", [AT_EACH, STEP])
@pytest.mark.parametrize("company", [False, True], ids=["alone", "beside others"])
@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_at_each_line_harms_nobody(ledger: Ledger, way: Way, company: bool, step: int) -> None:
    with Client(ledger.endpoint) as client:
        for value in (1.0, 2.0):
            assert way(client, value) == doubled(way, value)
        before = client._connection
        assert before is not None
        kept = client.submit("m", one(-7.0), timeout=3600.0)  # of nobody who is interrupted, and longer than all this
        eventually(lambda: len(ledger.held) == 1)
        beside = Beside(client) if company else None
        line, reached = 1, 0
        while True:
            with AtLine(line, interrupt) as trace:
                try:
                    assert way(client, 10.0 * line) == doubled(way, 10.0 * line), trace.where
                    interrupted = False
                except KeyboardInterrupt:
                    interrupted = True
            if trace.passed < line:
                break
            reached += interrupted
            # Twice, for the answer to the first may be the one that the interrupted call has left.
            for value in (10.0 * line + 3, 10.0 * line + 4):
                assert way(client, value) == doubled(way, value), trace.where
            line += step
        if beside is not None:
            beside.end()
        assert reached > 60 // step
        assert client._connection is before, "each time it was mended"
        assert not kept.done()
        eventually(lambda: len(before._dialogue.jobs) == 1)
        assert kept.cancel()
        eventually(lambda: is_empty(client))
        eventually(lambda: not ledger.held)
        assert before.driver._current is None
        assert not before.driver._standing


@pytest.mark.parametrize("step", [AT_EACH, STEP])
@pytest.mark.parametrize("way", [run, mapped])
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_at_each_line_leaves_no_job_behind(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, way: Way, step: int
) -> None:
    """None of these is answered, so it is interrupted before it waits, or while it does."""
    with Client(ledger.endpoint) as client:
        assert way(client, 1.0) == doubled(way, 1.0)
        line = 1
        while True:
            with monkeypatch.context() as patch, AtLine(line, interrupt) as trace:
                _interrupt_who_waits(patch, trace)
                with contextlib.suppress(KeyboardInterrupt):
                    way(client, -1000.0)
            if trace.passed < line:
                break
            eventually(lambda: is_empty(client), saw=lambda: left(client, trace))  # called in this turn
            eventually(lambda: not ledger.held)
            assert way(client, 1.0 * line) == doubled(way, 1.0 * line), trace.where
            line += step
        assert line > 100


def _interrupt_who_waits(patch: pytest.MonkeyPatch, trace: AtLine) -> None:
    """Ctrl-C where this thread would sleep, but once: from another one it could come when the call is over."""
    whole, main = Sources.wait, threading.get_ident()

    def wait(self: Sources, seconds: float) -> dict[int, int]:
        sleeps = bool(seconds) and threading.get_ident() == main and not trace.where
        ready = whole(self, 0.0 if sleeps else seconds)
        if sleeps and not ready:
            signal.raise_signal(signal.SIGINT)
        return ready

    patch.setattr(Sources, "wait", wait)


@pytest.mark.parametrize("step", [AT_EACH, FORK_STEP])
@pytest.mark.parametrize("way", WAYS)
def test_a_fork_at_each_line_leaves_both_in_order(ledger: Ledger, way: Way, step: int) -> None:
    with Client(ledger.endpoint) as client:
        for value in (1.0, 2.0):
            assert way(client, value) == doubled(way, value)
        before = client._connection
        line = 1
        while True:
            children: list[int] = []
            with AtLine(line, lambda: children.append(os.fork())) as trace:  # noqa: B023  # called in this turn
                try:
                    found: object = way(client, 10.0 * line)
                except BaseException as error:
                    found = error
            if trace.passed < line:
                break
            (child,) = children
            if not child:
                _child_ends(client, way, line, found)
            assert found == doubled(way, 10.0 * line), trace.where
            assert way(client, 10.0 * line + 3) == doubled(way, 10.0 * line + 3), trace.where
            assert ended(child) == 0, trace.where
            line += step
        assert line > 100
        assert client._connection is before
        eventually(lambda: is_empty(client))


def _child_ends(client: Client, way: Way, line: int, found: object) -> None:
    """Its call has ended in the answer or an error of the pool's; then it has a connection of its own."""
    status = 1
    try:  # whatever happens, the child must not go on with the tests
        if found != doubled(way, 10.0 * line) and not isinstance(found, errors.PoolError):
            sys.stderr.write(f"the child's call at line {line}: {found!r}\n")
            status = 2
        elif way(client, 5.0) != doubled(way, 5.0):
            status = 3
        else:
            client.close()
            status = 0
    finally:
        os._exit(status)


def ended(child: int) -> int:
    """With which status, or -9 where it did not end by itself."""
    end = os.pidfd_open(child)
    try:
        if not select.select([end], [], [], 20.0)[0]:
            os.kill(child, 9)
    finally:
        os.close(end)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

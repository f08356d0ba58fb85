"""Who waits at a client's socket: the caller of a lone job, else the I/O thread. Against a pool of the test's own."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client import pulse
from pool.client.channel import Channel
from pool.client.connection import Connection
from pool.client.dialogue import Dialogue
from pool.client.futures import JobFuture
from pool.client.sources import Sources
from pool.client.wait import Wait
from pool.wire import client_messages as wire
from support.asked import Asked
from support.fake_pool import FakePool, Serving
from support.processes import eventually


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    pool = Serving(tmp_path, lambda _, inputs: {"y": inputs[""] + 1})
    yield pool
    pool.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with Client(f"ipc://{tmp_path}/p.sock") as client:
        yield client


def connection(client: Client) -> Connection:
    assert client._connection is not None
    return client._connection


def counted(patch: pytest.MonkeyPatch, kind: type[Any], name: str) -> list[threading.Thread]:
    """The threads of all calls from now on."""
    calls: list[threading.Thread] = []
    whole = getattr(kind, name)

    def call(self: Any, *args: Any) -> Any:
        calls.append(threading.current_thread())
        return whole(self, *args)

    patch.setattr(kind, name, call)
    return calls


def settled(client: Client) -> None:
    """The pool has answered once, and the I/O thread rests."""
    client.run("m", 1.0)
    rests(client)


def rests(client: Client) -> None:
    """Nobody drives, and the thread sleeps until something comes: it has begun to, and is not about to."""
    driver = connection(client).driver

    def sleeps() -> bool:
        frame = sys._current_frames().get(driver._thread)
        return frame is not None and frame.f_code is Sources.rest.__code__

    eventually(lambda: driver._current is None and driver._rests_until - time.monotonic() > 10.0 and sleeps())


@pytest.mark.usefixtures("serving")
def test_the_caller_of_a_lone_job_wakes_nobody(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "PING_S", 60.0)  # where a pool is slow, its PONG may come when nobody drives any more
    settled(client)
    works = counted(monkeypatch, Dialogue, "work")
    resting = counted(monkeypatch, Sources, "rest")
    for n in range(20):
        assert client.run("m", float(n))["y"] == n + 1
    assert set(works) == {threading.current_thread()}
    assert resting == []


@pytest.mark.usefixtures("serving")
def test_the_caller_of_a_lone_job_receives_what_has_come_and_no_more(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(client)
    received: list[bool] = []
    whole = Channel.receive

    def receive(self: Channel) -> Any:
        frames = whole(self)
        received.append(frames is not None)
        return frames

    monkeypatch.setattr(Channel, "receive", receive)
    for n in range(20):
        assert client.run("m", float(n))["y"] == n + 1
    assert received.count(True) >= 20
    assert received.count(False) <= 10, "ZeroMQ wakes one now and then for nothing"


def test_others_jobs_are_seen_to_meanwhile(fake: FakePool, client: Client) -> None:
    with ThreadPoolExecutor() as callers:
        settle(fake, callers, client)
        lone = callers.submit(client.run, "m", 1.0)
        first = fake.expect(Asked)
        beside = [client.submit("m", float(n)) for n in range(3)]
        others = [fake.expect(Asked) for _ in beside]
        for job in others:
            fake.answer(job.job, {"y": np.float64(job.job)})
        assert [future.result(5)["y"] for future in beside] == [job.job for job in others]
        assert not lone.done()
        status = callers.submit(client.status)
        asked = fake.expect(wire.Ask)
        assert asked.what == "status"
        fake.answer(first.job, {"y": np.float64(7.0)})
        assert lone.result(5)["y"] == 7.0
        client.close()
        with pytest.raises(errors.PoolError):
            status.result(5)


def settle(fake: FakePool, callers: ThreadPoolExecutor, client: Client) -> None:
    first = callers.submit(client.run, "m", 0.0)
    fake.open()
    fake.answer(fake.expect(Asked).job, {"y": np.float64(0.0)})
    assert first.result(5)["y"] == 0.0
    rests(client)


def test_callers_that_come_at_once_are_all_answered(serving: Serving, client: Client) -> None:
    def many(first: int) -> list[float]:
        return [float(client.run("m", float(first + n))["y"]) for n in range(100)]

    with ThreadPoolExecutor(4) as callers:
        found = list(callers.map(many, range(0, 400, 100)))
    assert found == [[float(first + n + 1) for n in range(100)] for first in range(0, 400, 100)]
    assert len(serving.submitted) == 400


def test_it_pings_while_it_waits(fake: FakePool, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor() as callers:
        settle(fake, callers, client)
        monkeypatch.setattr(pulse, "PING_S", 0.1)
        lone = callers.submit(client.run, "m", 1.0)
        job = fake.expect(Asked)
        for _ in range(3):
            fake.expect(wire.Ping)
            fake.send(wire.Pong())
        fake.answer(job.job, {"y": np.float64(7.0)})
        assert lone.result(5)["y"] == 7.0


def test_a_pool_that_goes_away_and_returns_meanwhile_costs_nothing(
    fake: FakePool, client: Client, tmp_path: Path
) -> None:
    with ThreadPoolExecutor() as callers:
        settle(fake, callers, client)
        lone = callers.submit(client.run, "m", 1.0, timeout=20.0)
        fake.expect(Asked)
        fake.close()
        following = FakePool(tmp_path, b"2" * 8)
        following.open()
        again = following.expect(Asked)
        assert (again.attempts, again.in_doubt) == (1, True)
        following.answer(again.job, {"y": np.float64(7.0)})
        assert lone.result(5)["y"] == 7.0
        following.close()


def test_a_pool_that_says_nothing_is_late(fake: FakePool, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pool.client.dispatch.LATE_S", 0.1)
    with ThreadPoolExecutor() as callers:
        settle(fake, callers, client)
        lone = callers.submit(client.run, "m", 1.0, timeout=0.2)
        fake.expect(Asked)
        with pytest.raises(errors.DeadlineExceeded, match="the pool did not answer within"):
            lone.result(5)


def test_closing_the_client_ends_it(fake: FakePool, client: Client) -> None:
    with ThreadPoolExecutor() as callers:
        settle(fake, callers, client)
        lone = callers.submit(client.run, "m", 1.0)
        fake.expect(Asked)
        client.close()
        with pytest.raises(errors.PoolUnreachable, match="closed before the answer came"):
            lone.result(5)


def interrupted(client: Client, when: Callable[[], bool]) -> None:
    """Ctrl-C in a `run` of this thread, once `when` says so, while it waits: in its midst it costs the connection."""
    main = threading.get_ident()

    def interrupt() -> None:
        eventually(when)
        with connection(client).driver._lock:  # it is free once the one who drives waits
            signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        client.run("m", 1.0)
    thread.join()


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_it_waits_takes_back_the_job_alone(tmp_path: Path, client: Client) -> None:
    answers = threading.Event()
    pool = Serving(tmp_path, lambda _, inputs: {"y": inputs[""]} if answers.is_set() else None)
    try:
        answers.set()
        settled(client)
        answers.clear()
        before = connection(client)
        interrupted(client, lambda: len(pool.submitted) == 2)
        eventually(lambda: pool.cancelled == [pool.submitted[1].job])
        answers.set()
        assert client.run("m", 3.0)["y"] == 3.0
        assert connection(client) is before
    finally:
        pool.close()


def test_ctrl_c_in_the_midst_of_a_message_costs_no_other_job(
    serving: Serving, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(client)
    before = connection(client)
    answers = serving._serve
    serving._serve = lambda submit, inputs: (
        None if inputs[""] == 7.0 and not submit.in_doubt else answers(submit, inputs)
    )
    other = client.submit("m", 7.0)
    eventually(lambda: len(serving.submitted) == 2)
    assert not other.done()
    with monkeypatch.context() as patch:
        take_outbox = Dialogue._take_outbox

        def interrupt(dialogue: Dialogue) -> None:
            if threading.current_thread() is threading.main_thread():  # who else drives gets no Ctrl-C
                raise KeyboardInterrupt
            take_outbox(dialogue)

        patch.setattr(Dialogue, "_take_outbox", interrupt)
        with pytest.raises(KeyboardInterrupt):
            client.run("m", 1.0)
    assert other.result(5)["y"] == 8.0
    assert serving.submitted[-1].in_doubt
    assert client.run("m", 3.0)["y"] == 4.0
    assert connection(client) is before


def test_a_fork_while_a_caller_waits_leaves_both_in_order(fake: FakePool, client: Client) -> None:
    with ThreadPoolExecutor() as callers:
        settle(fake, callers, client)
        lone = callers.submit(client.run, "m", 1.0)
        job, parent = fake.expect(Asked), fake.client
        child = os.fork()
        if not child:
            status = 1
            try:  # whatever happens, the child must not go on with the tests
                future = client.submit("m", 1.0, timeout=0.5)
                status = 0 if isinstance(future.exception(5), errors.PoolError) else 2
            finally:
                os._exit(status)
        deadline = time.monotonic() + 10
        while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
            assert time.monotonic() < deadline
            fake.next(0.02)
        assert os.waitstatus_to_exitcode(done[1]) == 0
        fake.client = parent
        fake.answer(job.job, {"y": np.float64(7.0)})
        assert lone.result(5)["y"] == 7.0


def test_who_drives_takes_no_lock_of_anothers_future(
    serving: Serving, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in its midst would leave it taken for ever."""
    settled(client)
    tells = counted(monkeypatch, JobFuture, "notify")
    works = counted(monkeypatch, Dialogue, "work")
    answers = serving._serve

    def late(submit: Asked, inputs: dict[str, Any]) -> Any:
        """The answer to the future first, then that to the one who drives."""
        if inputs[""] == 7.0:
            return None
        serving.answer(serving.submitted[1].job, {"y": np.float64(8.0)})
        return answers(submit, inputs)

    serving._serve = late
    future = client.submit("m", 7.0)
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())
    eventually(lambda: len(serving.submitted) == 2)
    client.run("m", 1.0)
    assert called.wait(5)
    assert future.result(5)["y"] == 8.0
    assert threading.current_thread() in works
    assert [thread.name for thread in tells] == ["pool-client"]


@pytest.mark.parametrize("way", ["run", "result", "exception", "a run of another thread"])
@pytest.mark.usefixtures("interruptible")
def test_a_signals_handler_may_wait_though_its_thread_drives(
    serving: Serving, client: Client, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr("pool.client.driver.LOOK_S", 0.05)
    settled(client)
    answers = serving._serve
    held = threading.Event()
    found: list[object] = []

    def serve(submit: Asked, inputs: dict[str, Any]) -> Any:
        if inputs[""] != 1.0:
            return answers(submit, inputs)
        held.set()
        return None

    def handle(*_: object) -> None:
        driver = connection(client).driver._current
        assert driver is not None
        match way:
            case "run":
                found.append(client.run("m", 3.0)["y"])
            case "result":
                found.append(client.submit("m", 3.0).result()["y"])
            case "exception":
                found.append(client.submit("m", 3.0).exception())
            case _:
                with ThreadPoolExecutor() as other:
                    found.append(other.submit(client.run, "m", 3.0).result(10)["y"])
        serving.late.append((serving.submitted[1].job, 2.0))

    def call() -> None:
        assert held.wait(5)
        with connection(client).driver._lock:  # it is free once the one who drives waits
            signal.pthread_kill(main, signal.SIGUSR1)

    serving._serve = serve
    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        caller = threading.Thread(target=call)
        caller.start()
        assert client.run("m", 1.0)["y"] == 2.0
        caller.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == [None if way == "exception" else 4.0]


def test_a_signals_handler_in_the_midst_of_a_message_is_refused(serving: Serving, client: Client) -> None:
    settled(client)
    serving._serve = lambda *_: None
    future = client.submit("m", 7.0)
    eventually(lambda: len(serving.submitted) == 2)
    with connection(client).driver._lock:
        for way in (lambda: client.run("m", 1.0), future.result, client.status, lambda: list(client.map("m", [1.0]))):
            with pytest.raises(errors.InvalidState, match="a signal handler must not wait"):
                way()
    serving.late.append((serving.submitted[1].job, 8.0))
    assert future.result(5)["y"] == 8.0


def test_the_helm_is_handed_to_one_who_is_about_to_sleep(
    serving: Serving, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pool.client.driver.LOOK_S", 60.0)
    settled(client)
    serving._serve = lambda *_: None
    handed, sleeps = threading.Event(), threading.Event()
    whole = Wait.sleep

    def sleep(self: Wait, seconds: float) -> None:
        sleeps.set()
        assert handed.wait(5)
        whole(self, seconds)

    with ThreadPoolExecutor() as callers:
        first = callers.submit(client.run, "m", 1.0)
        eventually(lambda: len(serving.submitted) == 2)
        monkeypatch.setattr(Wait, "sleep", sleep)
        second = callers.submit(client.run, "m", 0.0)
        assert sleeps.wait(5)
        eventually(lambda: len(serving.submitted) == 3)
        serving.late.append((serving.submitted[1].job, 2.0))
        assert first.result(5)["y"] == 2.0
        handed.set()
        serving.late.append((serving.submitted[2].job, 1.0))
        assert second.result(5)["y"] == 1.0

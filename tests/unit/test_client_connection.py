"""A client's connection against a pool that the test plays itself."""

import errno
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pool import Client, errors
from pool.client import connection, pulse
from pool.client.connection import Connection
from pool.client.peer import Peer
from pool.client.request import Request
from pool.client.sources import Sources
from pool.wire import client_messages as wire
from pool.wire.faults import Fault
from pool.wire.packing import pack_answer
from pool.wire.timeline import Timeline
from simulation.driver import Driver
from support import told_pool
from support.asked import Asked
from support.fake_pool import TIMELINE, FakePool, Serving
from support.processes import eventually

REQUEST = Request("echo", timeout_s=60.0)


def test_a_client_that_only_listens_pings(fake: FakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "PING_S", 0.1)
    began = time.monotonic()  # some may have left before this thread comes to read them
    link = Connection(Peer(fake.endpoint))
    link.submit(REQUEST, None, [b"call"], time.monotonic())
    fake.open()
    fake.expect(Asked)
    pings = 0

    def five() -> bool:
        nonlocal pings
        fake.send(wire.Pong())  # as answers do: the pool is never silent
        pings += isinstance(fake.next(0.02), wire.Ping)
        return pings == 5

    eventually(five)
    assert pings <= (time.monotonic() - began) / 0.1, "one in so long"
    link.close()


def test_an_unanswered_ping_ends_it(fake: FakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "PING_S", 0.05)
    monkeypatch.setattr(pulse, "SILENCE_S", 0.3)
    link = Connection(Peer(fake.endpoint, reconnect_timeout_s=0.0))
    future = link.submit(REQUEST, None, [b"call"], time.monotonic())
    fake.open()
    with pytest.raises(errors.PoolUnreachable, match="no sign of life"):
        future.result(5)


def test_a_job_that_never_fits_is_not_worth_a_retry(fake: FakePool) -> None:
    link = Connection(Peer(fake.endpoint))
    first = link.submit(REQUEST, None, [b"x" * 60], time.monotonic())
    large = link.submit(REQUEST, None, [b"x" * 101], time.monotonic())
    second = link.submit(REQUEST, None, [b"x" * 60], time.monotonic())
    fake.open(credit_bytes=100)
    with pytest.raises(errors.InvalidInput, match="101 B exceeds"):
        large.result(5)
    with pytest.raises(errors.Overloaded, match="60 B of this client are in the pool") as caught:
        second.result(5)
    assert caught.value.retryable
    link.close()
    assert isinstance(first.exception(5), errors.PoolUnreachable)


def test_a_question_without_an_answer_ends_and_is_forgotten(fake: FakePool) -> None:
    link = Connection(Peer(fake.endpoint))
    with pytest.raises(errors.PoolUnreachable, match="did not answer 'status' within"):
        link.ask("status", "", 0.05)
    assert not link._requests
    fake.open()
    assert fake.next(0.1) is None  # nobody wants to know any more
    link.close()


def test_a_dropped_connection_ends_with_its_last_answer(fake: FakePool) -> None:
    link = Connection(Peer(fake.endpoint))
    future = link.submit(REQUEST, None, [b"call"], time.monotonic())
    link.release()
    fake.open()
    number = fake.expect(Asked).job
    assert not link.lost
    fake.send(wire.Failure(number, Fault.MODEL_FAILED, "as told", None))
    assert isinstance(future.exception(5), errors.ModelFailed)
    fake.expect(wire.Close)
    link._thread.join(5)
    assert not link._thread.is_alive()


def test_what_cannot_be_made_is_the_futures_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    client = Client(f"ipc://{tmp_path}/p.sock")
    with monkeypatch.context() as patch:
        patch.setattr(connection, "Sources", no_descriptor)
        with pytest.raises(errors.PoolUnreachable, match="Too many open files"):
            client.submit("echo", 1.0).result(0)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(errors.PoolUnreachable, match="can't start new thread"):
            client.submit("echo", 1.0).result(0)
    client.close()


def test_a_job_says_what_it_was_asked_for(fake: FakePool) -> None:
    with Client(fake.endpoint) as client:
        client.submit("m", {"x": [[1.0], [2.0]]}, signature="s", outputs=["y"], timeout=5, priority=-7, device=1)
        fake.open()
        submit = fake.expect(Asked)
        assert (submit.model, submit.signature, submit.outputs, submit.rows) == ("m", "s", ("y",), 2)
        assert (submit.priority, submit.device) == (-7, "1")
        assert 0 < submit.timeout_s <= 5
        assert fake.inputs(submit)["x"].tolist() == [[1.0], [2.0]]


def test_an_answer_in_pieces_is_joined_and_tells_its_timeline(fake: FakePool) -> None:
    with Client(fake.endpoint) as client:
        began = time.monotonic()
        future = client.submit("m", np.zeros(5))
        fake.open()
        job = fake.expect(Asked).job
        assert future.timeline is None
        told = Timeline(99, 1e-6, 2e-6, 3e-6, 4e-6, 5e-6, rows=5, batch_rows=8, slot=3, device="gpu:1", attempts=2)
        fake.answer(job, {"y": np.arange(3)}, {"y": np.arange(3, 5)}, timeline=told)
        assert future.result(5)["y"].tolist() == [0, 1, 2, 3, 4]
        wall_s = time.monotonic() - began
        timeline = future.timeline
        assert timeline is not None
        assert sum(seconds for _, seconds in timeline.segments()) == pytest.approx(timeline.wall_s, abs=1e-9)
        assert 0 < timeline.wall_s <= wall_s
        assert min(seconds for _, seconds in timeline.segments()) > 0
        assert (timeline.job, timeline.rows, timeline.batch_rows, timeline.slot) == (99, 5, 8, 3)
        assert (timeline.device, timeline.attempts, timeline.run_s) == ("gpu:1", 2, 4e-6)


def test_pieces_that_do_not_fit_are_another_versions(fake: FakePool) -> None:
    with Client(fake.endpoint) as client:
        future = client.submit("m", np.zeros(5))
        fake.open()
        fake.answer(fake.expect(Asked).job, {"y": np.zeros((3, 2))}, {"y": np.zeros((2, 3))})
        with pytest.raises(
            errors.Incompatible, match=r"2 pieces do not belong together: output 'y' is float64 \[3, 2\]"
        ):
            future.result(5)
        assert future.timeline is None


def test_a_refusal_says_when_to_come_again(fake: FakePool) -> None:
    with Client(fake.endpoint) as client:
        future = client.submit("m", 1.0)
        fake.open()
        fake.refuse(fake.expect(Asked).job, 0.25)
        with pytest.raises(errors.Overloaded, match=r"2 jobs are in the pool; try again in 0.25 s") as caught:
            future.result(5)
        assert caught.value.retry_after == 0.25
        assert future.timeline is None


@pytest.mark.parametrize(("asks", "about"), [((), ""), ((17,), "17")])
def test_explain_asks_about_a_job(tmp_path: Path, asks: tuple[int, ...], about: str) -> None:
    driver = Driver(["m"]).serve()
    driver.submit("m")
    said = told_pool.history(driver, 1) if asks else told_pool.recent(driver, [])
    pool = Serving(tmp_path, lambda *_: None, {"explain": said.to_dict()})
    try:
        with Client(pool.endpoint) as client:
            assert client.explain(*asks) == said
        assert [(ask.what, ask.about) for ask in pool.asked] == [("explain", about)]
    finally:
        pool.close()


def test_several_results_in_one_message(fake: FakePool) -> None:
    with Client(fake.endpoint) as client:
        futures = [client.submit("m", float(n), priority=n) for n in range(3)]
        fake.open()
        jobs = [fake.expect(Asked).job for _ in futures]
        answers = [pack_answer({"y": np.array(float(n)), "z": np.arange(n)}) for n in range(3)]
        results = tuple(wire.Result(job, (len(each),), TIMELINE) for job, each in zip(jobs, answers, strict=True))
        fake.send(wire.Results(results), [frame for answer in answers for frame in answer])
        for n, future in enumerate(futures):
            assert future.result(5)["y"] == n
            assert future.result(5)["z"].tolist() == list(range(n))


def test_results_that_are_fewer_than_they_say_end_in_an_error(fake: FakePool) -> None:
    with Client(fake.endpoint) as client:
        futures = [client.submit("m", float(n), priority=n) for n in range(2)]
        fake.open()
        jobs = [fake.expect(Asked).job for _ in futures]
        answer = pack_answer({"y": np.array(0.0)})
        fake.send(wire.Results(tuple(wire.Result(job, (len(answer),), TIMELINE) for job in jobs)), answer)
        for future in futures:
            with pytest.raises(errors.Incompatible, match="2 buffers in 2 pieces, where there are 1"):
                future.result(5)


def test_who_keeps_one_small_answer_of_many_keeps_no_other(fake: FakePool) -> None:
    """They come in one frame, of which an answer alone is its own memory already."""
    with Client(fake.endpoint) as client:
        futures = [client.submit("m", np.zeros(1, np.uint8), outputs=["y"]) for _ in range(2)]
        fake.open()
        jobs = [fake.expect(Asked).job for _ in futures]
        packed = [pack_answer({"y": np.full(4000, job % 256, np.uint8)}) for job in jobs]
        results = [wire.Result(job, (len(each),), TIMELINE) for job, each in zip(jobs, packed, strict=True)]
        fake.send(wire.Results(tuple(results)), [frame for each in packed for frame in each])
        for job, future in zip(jobs, futures, strict=True):
            kept = future.result(5)["y"]
            assert kept.tolist() == [job % 256] * 4000
            while isinstance(kept.base, np.ndarray):
                kept = kept.base
            owner = kept.base.obj if isinstance(kept.base, memoryview) else kept.base
            assert owner is None or len(owner) < 2 * 4000


@pytest.mark.parametrize("where", ["in a callback", "in its wait"])
def test_what_came_while_it_stood_still_is_read_before_anything_is_late(
    fake: FakePool, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The answer may take a while from the kernel to whoever judges: here until the test sends it."""
    stands, goes_on = threading.Event(), threading.Event()

    def stand(*_: object) -> None:
        stands.set()
        assert goes_on.wait(30)

    with Client(fake.endpoint) as client:
        first = client.submit("m", 1.0)
        fake.open()
        job = fake.expect(Asked)
        waits = client.submit("m", 2.0, timeout=60.0)
        waiting = fake.expect(Asked)
        link = client._connected()
        if where == "in a callback":
            first.add_done_callback(stand)
            fake.answer(job.job, {"y": np.float32(1)})
        else:
            whole = Sources.rest

            def rest(self: Sources, seconds: float) -> None:
                whole(self, seconds)
                if seconds and self is link._sources and not stands.is_set():  # else it stands with the lock
                    stand()

            monkeypatch.setattr(Sources, "rest", rest)
            link._sources.call_thread()
        assert stands.wait(30)
        # Not earlier: it rests for so long after this test was held up.
        monkeypatch.setattr(pulse, "OVERSLEPT_S", 0.1)
        monkeypatch.setattr(pulse, "SETTLE_S", 60.0)
        with link.driver._lock:  # while it stands, the time of the job runs out
            late = link._dialogue.jobs.get(waiting.job)
            assert late is not None
            link._dialogue.jobs.wait_until(late, time.monotonic())
        eventually(lambda: time.monotonic() > link._dialogue._pulse._awake + 2 * pulse.OVERSLEPT_S)
        goes_on.set()
        for _ in range(2):  # whole turns: it judges last of all
            other = client.submit("m", 3.0)
            fake.answer(fake.expect(Asked).job, {"y": np.float32(3)})
            assert other.result(5)
        assert not waits.done()
        fake.answer(waiting.job, {"y": np.float32(2)})
        assert waits.result(5)["y"] == 2

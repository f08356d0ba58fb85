"""The client for threads, against a pool of stub models."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client import client as module
from pool.client import connection
from pool.client.channel import Channel, source
from pool.wire.bodies import unpack
from support.pools import STUB, RunningPool, row, until

CONFIG = f"""{STUB}
[[model]]
name = "wide"
path = "stub:double?width=50000"
replicas = 1
[[model]]
name = "gated"
path = "stub:double?gate={{folder}}/gate&log={{folder}}/ran"
replicas = 1
"""


@pytest.fixture
def gate(running: RunningPool, client: Client) -> Path:
    """Jobs of "gated" wait from now on; those of the test before have ended."""
    gate = running.folder / "gate"
    gate.touch()
    until(lambda: not gated(client)["running"], "nothing runs")
    gate.unlink()
    return gate


def gated(client: Client) -> Any:
    return client.status()["models"][-1]


def test_a_result_says_where_it_comes_from(client: Client) -> None:
    result = client.run("plain", row(3))
    assert result["y"].tolist() == [[6]]
    result["y"] += 1
    assert (result.device, result.version) == (f"cpu:{result.slot}", "")
    assert 0 <= result.timeline.run_s <= result.timeline.total_s
    assert result.timeline.together == 1
    assert client.submit("plain", [[3]]).result()["y"].tolist() == [[6]]


def test_strings_and_mixed_text(client: Client) -> None:
    assert client.run("text", ["x", "é".encode()])["y"].tolist() == [b"x", "é".encode()]
    assert client.run("text", np.array(["a"]))["y"].tolist() == [b"a"]
    assert client.run("text", np.array(["a" * 50000, "b"], object))["y"].tolist() == [b"a" * 50000, b"b"]
    with pytest.raises(errors.InvalidInput, match=r"input .x.: .*neither str nor bytes"):
        client.run("text", ["x", 1])


def test_errors_by_their_names(client: Client) -> None:
    with pytest.raises(errors.ModelNotFound, match="plain"):
        client.run("plian", [[1.0]])
    with pytest.raises(errors.ModelFailed, match="does not bear"):
        client.run("plain", row(-1))
    with pytest.raises(errors.InvalidInput, match=r"expected float32 \[\?, 1\], got float32 \[1\]: add an axis"):
        client.submit("plain", {"x": np.ones(1, np.float32)}).result()
    with pytest.raises(TypeError, match=r"unknown: .*timout.*known: .*timeout"):
        client.run("plain", row(), timout=1)
    for wrong in ({"timeout": float("nan")}, {"timeout": -1}, {"priority": 101}):
        with pytest.raises(errors.InvalidInput):
            client.run("plain", row(), **wrong)
    with pytest.raises(errors.DeadlineExceeded):
        client.run("plain", row(), timeout=0)


def test_large_tensors_go_through_memory_that_follows_the_arrays(client: Client) -> None:
    x = np.arange(50_000, dtype=np.float32)[None]
    client.run("wide", x)  # teaches how much room an answer needs
    kept = []
    for factor in range(3):
        result = client.run("wide", x * factor)
        assert result["y"].base is not None
        assert not isinstance(result["y"].base, bytearray), "premise: a view of shared memory"
        kept.append(result["y"][:, 100:].reshape(-1)[None])  # numpy keeps of such a chain its last array alone
        kept[-1] += 1
    for factor, rows in enumerate(kept):
        np.testing.assert_array_equal(rows, x[:, 100:] * factor * 2 + 1)
    arena = client._own.channel._arena
    kept.clear()
    del result, rows
    region = arena.take(arena.size, 0)
    assert region is not None, "all of it is free again"


def test_what_is_larger_than_an_arena_gets_one_of_its_own(client: Client) -> None:
    x = np.ones((400, 50_000), np.float32)  # 80 MB
    for _ in range(3):
        result = client.run("wide", x)
        assert result["y"][399, 49_999] == 2
    assert len(client._own.channel.connection._lent) <= 1


def test_results_are_copied_out_once_the_arena_is_half_full(client: Client) -> None:
    x = np.ones((40, 50_000), np.float32)  # 8 MB
    kept = [future.result() for future in client.submit_many("wide", [x] * 2)]
    kept += [client.submit("wide", x).result() for _ in range(20)]
    assert {result["y"].base.flags.owndata for result in kept[2:]} == {False, True}
    assert all((result["y"] == 2).all() for result in kept)


def test_a_pool_of_another_wire_is_incompatible(running: RunningPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WIRE", 99)
    with pytest.raises(errors.Incompatible, match=r"is release 0\.2\.0, this client 0\.2\.0"):
        Client(running.endpoint)
    asked = connection.Connector(running.endpoint, 0.0)
    for _ in range(2):  # the second one asks again, and does not wait for the first one's greeting
        with pytest.raises(errors.Incompatible):
            until(asked.connection, "the greeting")


def test_channels_end_with_their_threads_and_are_bounded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CHANNELS", 3)
    barrier = threading.Barrier(6)

    def run(value: float) -> float:
        barrier.wait(10)
        found: float = client.run("plain", row(value))["y"].item()
        barrier.wait(10)
        return found

    client.run("plain", row())
    with ThreadPoolExecutor(6) as threads:
        assert [*threads.map(run, range(6))] == [0, 2, 4, 6, 8, 10]
        assert len(client._channels) == 3
    assert len(client._channels) == 1


def test_cancel_withdraws_a_job_that_waits(client: Client, gate: Path) -> None:
    started = client.submit_many("gated", [row(100 + i) for i in range(2)])  # one for each lane
    until(lambda: gated(client)["running"] == 2, "both lanes run")
    waiting = client.submit("gated", row(7))
    until(lambda: gated(client)["waiting"] == 1, "the third job waits")
    assert waiting.cancel()
    assert waiting.cancel()
    assert wait([waiting], 5).done == {waiting}
    until(lambda: gated(client)["waiting"] == 0, "it is withdrawn")
    gate.touch()
    assert [future.result()["y"].item() for future in started] == [200, 202]
    assert not started[0].cancel()
    assert " 7\n" not in gate.with_name("ran").read_text()


def test_an_answer_that_cannot_be_read_is_asked_for_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before it in the same message, too."""
    reads = iter([*[source] * 2, lambda _: unpack(b"\xc1")])
    monkeypatch.setattr("pool.client.channel.source", lambda spec: next(reads, source)(spec))
    futures = client.submit_many("double", [row(value) for value in range(5)])
    assert [future.result(10)["y"].item() for future in futures] == [0, 2, 4, 6, 8]
    assert next(reads, None) is None, "the premise: one was not read"


def test_the_question_what_a_model_takes_counts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = client.model
    monkeypatch.setattr(client, "model", lambda *arguments: time.sleep(0.3) or ask(*arguments))
    with pytest.raises(errors.DeadlineExceeded, match="its 0 s ended"):
        client.run("plain", [[1.0]], timeout=0.2)


def test_a_callback_may_do_anything(client: Client) -> None:
    called = threading.Event()

    def leave(_: "Future[Any]") -> None:
        with pytest.raises(errors.PoolError, match="another thread"):
            client.status()
        called.set()
        raise SystemExit

    future = client.submit("plain", row())
    future.add_done_callback(leave)
    assert called.wait(10)
    assert client.submit("plain", row(2)).result(10)["y"].item() == 4


def test_a_fault_of_the_thread_ends_all_futures_and_the_next_call_works(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted = threading.Event()

    def fail(self: Channel, frame: bytes) -> Any:
        assert submitted.wait(10)
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr(Channel, "decode", fail)
        futures = client.submit_many("plain", [row()] * 5)
        submitted.set()
        for future in futures:
            with pytest.raises(errors.PoolUnreachable, match="a fault"):
                future.result(10)
    assert client.submit("plain", row()).result(10)["y"].item() == 2


def test_close_ends_what_waits(running: RunningPool, gate: Path) -> None:
    client = Client(running.endpoint)
    future = client.submit("gated", row())
    with ThreadPoolExecutor(1) as threads:
        started = threads.submit(client.run, "gated", row())
        until(lambda: gated(client)["running"] == 2, "both run")
        client.close()
        for each in (future, started):
            with pytest.raises(errors.PoolUnreachable):
                each.result(10)
    with pytest.raises(errors.PoolUnreachable, match="closed"):
        client.run("plain", row())
    gate.touch()


@contextmanager
def frozen(running: RunningPool) -> Iterator[None]:
    os.kill(running.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(running.pid, signal.SIGCONT)


def test_channels_that_come_while_the_pool_is_frozen_are_served(running: RunningPool) -> None:
    """libzmq tries a connection once, and the kernel refuses those for which there is no place in the queue."""
    clients = [Client(running.endpoint) for _ in range(4)]
    with ThreadPoolExecutor(200) as threads:
        with frozen(running):
            calls = [threads.submit(clients[n % 4].run, "plain", row(n), timeout=20) for n in range(200)]
            until(lambda: sum(len(each._channels) for each in clients) == 200, "their channels")
        assert [call.result()["y"].item() for call in calls] == [2.0 * n for n in range(200)]
    for each in clients:
        each.close()


def test_a_frozen_pool_costs_no_job_more_than_a_second(
    running: RunningPool, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_S", 0.1)
    large = {"x": np.ones((20_000, 1), np.float32)}
    client.run("plain", large)
    with ThreadPoolExecutor(1) as threads, frozen(running):
        began = time.monotonic()
        calls = [client.submit("plain", large, timeout=0.3), threads.submit(client.run, "plain", row(), timeout=0.3)]
        for call in calls:
            with pytest.raises(errors.DeadlineExceeded):
                call.result(10)
        assert 0.3 < time.monotonic() - began < 2.0
        with pytest.raises(errors.PoolUnreachable, match="does not answer"):
            Client(running.endpoint)
    assert client.run("plain", row(), timeout=10)["y"].item() == 2
    sender = client._sender
    assert sender is not None
    assert client.submit("plain", large).result(10)["y"].shape == (20_000, 1)
    until(lambda: not sender.channel.jobs, "the late job's memory is back")


def test_what_libzmq_does_not_take_waits_and_is_not_lost(running: RunningPool, client: Client) -> None:
    client.submit("text", ["a"]).result(10)
    with frozen(running):
        texts = [str(i) * 40_000 for i in range(10)]
        jobs = [[texts[i % 10]] for i in range(400)]
        client._sender.channel.region = lambda size, room: None  # type: ignore[union-attr]  # all in bodies
        futures = client.submit_many("text", jobs)
        until(lambda: client._sender._unsent_bytes, "libzmq takes no more")  # type: ignore[union-attr]
        with pytest.raises(errors.Overloaded):
            client.submit_many("text", jobs * 10)
    for future, job in zip(futures, jobs, strict=True):
        assert future.result(30)["y"].tolist() == [job[0].encode()]

"""A client of two pools that a test plays: what goes on where, at moments that real pools would rarely come to."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pytest

from pool import Client, errors
from pool.client.request import Request
from pool.client.spread import Spread
from pool.client.spread.choice import PoolState
from pool.client.spread.member import AGAIN_S
from pool.wire import client_messages as wire
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.offers import Offer, Offers
from support.asked import Asked
from support.fake_pool import Serving
from support.processes import eventually

OFFERS = msgpack.unpackb(pack(Offers(0, 1, 0.0, {"m": Offer(1, False)})))
X = np.ones(1, np.float32)


class Played(Serving):
    """Answers its jobs unless it is `full`, or `stops`, or holds them back."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.full = self.stops = self.holds = False
        self.held = 0
        """Jobs that it has held back."""
        self.retry_after_s = 30.0
        super().__init__(folder, self._serve_one, {"offers": OFFERS})

    def _serve_one(self, asked: Asked, _: "dict[str, Any]") -> "dict[str, Any] | wire.Failure | None":
        if self.stops:
            return wire.Failure(asked.job, Fault.POOL_STOPPING, "it stops", None)
        if self.full:
            return wire.Failure(asked.job, Fault.OVERLOADED, "full", self.retry_after_s)
        if self.holds:
            self.held += asked.weight
            return None
        return {"y": np.ones(asked.rows or 1)}

    def close(self, linger_ms: int = 0) -> None:
        if not self._stop.is_set():
            super().close(linger_ms)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Played]]:
    pools = [Played(tmp_path / name) for name in "ab"]
    yield pools
    for pool in pools:
        pool.close()


@pytest.fixture
def client(two: list[Played]) -> Iterator[Client]:
    with Client([pool.endpoint for pool in two], reconnect_timeout=5.0) as client:
        client.run("m", X, timeout=20)
        assert client._spread is not None
        choice = client._spread._choice
        eventually(lambda: all(pool.state is PoolState.SERVING for pool in choice.pools.values()))
        yield client


def test_a_caller_who_waits_for_room_goes_on_when_the_pool_dies(two: list[Played], client: Client) -> None:
    """The first patient job is to be sent again, so the next of its line has not left, and its caller waits for it."""
    for pool in two:
        pool.full = True
    first = client.submit("m", X, block=True, timeout=60)
    eventually(lambda: sum(len(pool.submitted) for pool in two) >= 3)
    where = [pool.submitted[-1].job if pool.submitted else 0 for pool in two]
    assert all(where), "it has tried both"
    later: list[Any] = []
    threads = [
        threading.Thread(target=lambda: later.append(client.submit("m", X, block=True, timeout=60))) for _ in range(4)
    ]
    mapped: list[Any] = []
    threads.append(threading.Thread(target=lambda: mapped.extend(client.map("m", [X] * 3, timeout=60))))
    for thread in threads:
        thread.start()
    # All wait at one pool; where the other had refused a job too, it would be asked again only after its pause.
    eventually(lambda: jobs_at(client) >= 6 and any(whose(client, pool) == 0 for pool in two))
    lives, dies = sorted(two, key=lambda pool: whose(client, pool))
    lives.full = False
    dies.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert [future.exception(30) for future in (first, *later)] == [None] * 5
    assert len(mapped) == 3


def test_a_job_that_waits_for_room_goes_on_when_its_pool_stops(two: list[Played], client: Client) -> None:
    for pool in two:
        pool.full = True
        pool.retry_after_s = 0.01
    job = client.submit("m", X, block=True, timeout=60)
    eventually(lambda: max(len(pool.submitted) for pool in two) >= 4)
    stops, lives = sorted(two, key=lambda pool: -len(pool.submitted))
    lives.full = False
    stops.stops = True
    assert job.exception(20) is None
    eventually(lambda: jobs_at(client) == 0)


def test_a_job_that_finds_no_room_waits_for_the_pool_that_is_about_to_come(tmp_path: Path) -> None:
    full_at, late_at = (f"ipc://{tmp_path}/{name}/p.sock" for name in ("full", "late"))
    with (
        contextlib.closing(Played(tmp_path / "full")) as full,
        Client([full_at, late_at], connect_timeout=20.0, reconnect_timeout=20.0) as client,
    ):
        full.full = True
        jobs = [client.submit("m", X) for _ in range(3)]
        eventually(lambda: len(full.submitted) >= 3)
        with contextlib.closing(Played(tmp_path / "late")) as late:
            assert [len(job.result(20)["y"]) for job in jobs] == [1, 1, 1]
            assert (len(full.submitted), len(late.submitted)) == (3, 3)
        assert client._spread is not None
        member = client._spread._members[late_at]
        eventually(lambda: member.was_there)
        with pytest.raises(errors.Overloaded, match="full"):  # one that has gone may stay away
            client.run("m", X)
        assert len(full.submitted) == 4


@pytest.fixture
def come_between(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As soon as a job has found no pool that is there, all are. The models of such jobs."""
    met: list[str] = []
    assert client._spread is not None
    spread = client._spread
    following = spread._next

    def come() -> None:
        for pool in spread._choice.pools.values():
            spread._becomes(pool, PoolState.SERVING)

    def coming(request: Request, *about: Any) -> Any:
        found = following(request, *about)
        if found is None:
            met.append(request.model)
            thread = threading.Thread(target=come)
            thread.start()
            thread.join(0.3)  # it may have to wait for this one
        return found

    monkeypatch.setattr(spread, "_next", coming)
    return met


def all_go_away(spread: Spread) -> None:
    for pool in spread._choice.pools.values():
        spread._becomes(pool, PoolState.SOUGHT)


def test_a_pool_that_comes_as_a_job_is_placed_has_its_model(client: Client, come_between: list[str]) -> None:
    assert client._spread is not None
    spread = client._spread

    def is_met() -> bool:
        all_go_away(spread)  # until it looks again
        client.run("m", X, timeout=20)
        return bool(come_between)

    eventually(is_met)


def test_a_pool_that_comes_as_a_job_is_placed_again_gets_it(
    client: Client, come_between: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model that keeps its state: it goes to none but this pool, and is lost where that is nowhere."""
    assert client._spread is not None
    spread = client._spread
    monkeypatch.setattr(spread._choice, "keeps_state", lambda _: True)
    keeper = spread._choice.keeper("m", None, time.monotonic())
    assert keeper is not None
    member = spread._members[keeper.endpoint]
    job: Any = SimpleNamespace(
        future=SimpleNamespace(is_cancelled=False),
        at=member,
        request=Request("m"),
        submitted=time.monotonic(),
        tried=(),
    )

    def is_met() -> bool:
        all_go_away(spread)
        assert spread._following(job, errors.PoolUnreachable("it ends"), time.monotonic()) is member.connection
        return bool(come_between)

    eventually(is_met)


def jobs_at(client: Client) -> int:
    assert client._spread is not None
    return sum(pool.mine for pool in client._spread._choice.pools.values())


def whose(client: Client, pool: Played) -> int:
    assert client._spread is not None
    return client._spread._choice.pools[pool.endpoint].mine


def test_jobs_that_leave_together_go_on_together_and_are_counted_once(two: list[Played], client: Client) -> None:
    """A caller who submits many at once has some of them sent as a chunk, which has a pool as each of them has."""
    for _ in range(5):
        futures = [client.submit("m", X, timeout=60) for _ in range(100)]
        assert [future.exception(20) for future in futures] == [None] * 100
    for pool in two:
        pool.holds = True
    assert client._spread is not None
    with contextlib.ExitStack() as stack:
        for member in client._spread._members.values():
            assert member.connection is not None
            stack.enter_context(member.connection.driver._lock)  # its thread finds all of them at once
        futures = [client.submit("m", X, timeout=60) for _ in range(100)]
    eventually(lambda: sum(pool.held for pool in two) == 100)
    assert sum(asked.weight for pool in two for asked in pool.submitted) == 601
    for pool in two:
        assert any(asked.weight > 1 for asked in pool.submitted[-30:]), "some have left together"
    assert jobs_at(client) == 100
    moved = whose(client, two[0])
    two[1].holds = False
    two[0].close()
    eventually(lambda: sum(future.done() for future in futures) == moved)
    assert [future.exception(1) for future in futures if future.done()] == [None] * moved
    eventually(lambda: jobs_at(client) == 100 - moved)
    two[1].close()
    client.close()
    assert {type(future.exception(20)) for future in futures} == {type(None), errors.PoolUnreachable}


def test_a_turn_that_fails_keeps_no_job(two: list[Played], client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a pool has told: the thread that moves jobs goes on."""
    spread = client._spread
    assert spread is not None
    failed = threading.Event()

    def fail(*_: object) -> None:
        failed.set()
        raise ArithmeticError

    with monkeypatch.context() as patched:
        patched.setattr(spread, "_probe", fail)
        spread.wake()
        assert failed.wait(20)
    for pool in two:
        pool.holds = True
    futures = [client.submit("m", X, timeout=60) for _ in range(20)]
    eventually(lambda: sum(pool.held for pool in two) == 20)
    moved = whose(client, two[0])
    assert moved, [[asked.weight for asked in pool.submitted] for pool in two] + [jobs_at(client)]
    two[1].holds = False
    two[0].close()
    eventually(lambda: sum(future.done() for future in futures) == moved)
    assert [future.exception(1) for future in futures if future.done()] == [None] * moved


def test_nothing_is_left_of_a_client_that_is_closed_while_a_pool_is_sought_again(
    two: list[Played], client: Client
) -> None:
    two[0].close()
    eventually(lambda: not client.submit("m", X, timeout=20).exception(20))
    client.close()
    eventually(lambda: not [each for each in threading.enumerate() if each.name in ("pool-spread", "pool-client")])
    with pytest.raises(errors.InvalidState):
        client.run("m", X)


def test_any_number_of_names_that_no_pool_has_is_forgotten(
    two: list[Played], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pool.client.spread.choice.MOST_LACKING", 20)
    for pool in two:
        pool._serve = lambda asked, _: wire.Failure(asked.job, Fault.MODEL_NOT_FOUND, "no such model", None)
    assert client._spread is not None
    futures = [client.submit(f"nothing {number}", X, timeout=20) for number in range(200)]
    assert {type(future.exception(20)) for future in futures} == {errors.ModelNotFound}
    for member in client._spread._members.values():
        assert len(member.models) <= 65
        assert len(member.pool._lacking) <= 20


def test_a_pool_whose_answer_can_not_be_read_is_not_asked_without_a_pause(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    pools = [Played(folder) for folder in folders]
    try:
        pools[0]._answers = {"offers": "what"}
        began = time.monotonic()
        with Client([pool.endpoint for pool in pools]) as client:
            futures = [client.submit("m", X, timeout=20) for _ in range(5)]
            assert [future.exception(20) for future in futures] == [None] * 5
            eventually(lambda: len(pools[0].asked) >= 2)
            assert len(pools[0].asked) <= 2 + (time.monotonic() - began) / AGAIN_S
            assert client.run("m", X, timeout=20)
    finally:
        for pool in pools:
            pool.close()

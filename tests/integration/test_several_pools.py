"""A client of several pools, over real processes: which one gets a job, and where it goes if that one is lost."""

import asyncio
import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from pool import AsyncClient, Client, errors
from pool.client.spread.choice import PoolState
from support.pool_process import PoolProcess
from support.processes import eventually
from support.several_pools import MODEL, models, started

pytestmark = pytest.mark.remote


def row(number: float) -> "np.ndarray[Any, np.dtype[np.float32]]":
    return np.array([number], np.float32)


@pytest.fixture
def pools() -> Iterator[list[PoolProcess]]:
    with started(models(1), models(2)) as pools:
        yield pools


def endpoints(pools: list[PoolProcess]) -> list[str]:
    return [pool.endpoint for pool in pools]


def await_serving(client: Client, count: int) -> None:
    """Until the client knows so many pools that serve, as its first job has it look for them."""
    spread = client._spread
    assert spread is not None
    if not spread._members:
        client.run("whose", row(0))
    eventually(lambda: states(client).count(PoolState.SERVING) == count)


def states(client: Client) -> list[PoolState]:
    assert client._spread is not None
    return [pool.state for pool in client._spread._choice.pools.values()]


def whose(client: Client, jobs: int = 60) -> Counter[int]:
    """Which pools run so many jobs that are out at once."""
    futures = [client.submit("whose", row(0), timeout=20) for _ in range(jobs)]
    return Counter(int(next(iter(future.result(30).values()))[0]) for future in futures)


class Ends:
    """How often each future has ended, as its caller sees it."""

    def __init__(self, futures: "list[Future[Any]]") -> None:
        self.counts = [0] * len(futures)
        for number, future in enumerate(futures):
            future.add_done_callback(lambda _, number=number: self._count(number))  # type: ignore[misc]

    def _count(self, number: int) -> None:
        self.counts[number] += 1


def double(client: Client, count: int, **options: Any) -> "list[Future[Any]]":
    return [client.submit("slow", row(n), signature="double", timeout=60, **options) for n in range(count)]


def assert_doubled(futures: "list[Future[Any]]") -> None:
    assert [future.result(60)["y"].tolist() for future in futures] == [[2.0 * n] for n in range(len(futures))]


def test_jobs_go_to_all_pools_by_each_way(pools: list[PoolProcess]) -> None:
    with Client(endpoints(pools)) as client:
        await_serving(client, 2)
        assert set(whose(client)) == {1, 2}
        lone: set[int] = set()

        def lone_jobs_go_to_both() -> bool:  # not at once: an idle pool gets the next one, too
            lone.add(int(client.run("whose", row(0))["y"][0]))
            return len(lone) == 2

        eventually(lone_jobs_go_to_both)
        for answers in (
            [future.result(20) for future in client.submit_many("whose", [row(0)] * 200)],
            client.map("whose", [row(0)] * 200),
            client.scatter("whose", np.zeros(40, np.float32), pieces=40),
        ):
            seen = Counter(int(value) for answer in answers for value in next(iter(answer.values())))
            assert set(seen) == {1, 2}, seen


def test_tasks_use_all_pools_and_go_on_when_one_dies(pools: list[PoolProcess]) -> None:
    async def main() -> None:
        async with AsyncClient(endpoints(pools)) as client:
            await client.submit("whose", row(0))
            await asyncio.to_thread(await_serving, client._client, 2)
            jobs = [asyncio.ensure_future(client.submit("slow", row(n), signature="double")) for n in range(120)]
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
            pools[0].running.kill()
            answers = await asyncio.gather(*jobs)
            assert [answer["y"].tolist() for answer in answers] == [[2.0 * n] for n in range(120)]
            mapped = [answer["y"][0] async for answer in client.map("slow", [row(1)] * 20, signature="double")]
            assert mapped == [2.0] * 20

    asyncio.run(main())


@pytest.mark.parametrize("reduce", [None, "concat", "sum"])
def test_a_scatter_has_each_piece_once_though_a_pool_dies_under_it(
    pools: list[PoolProcess], reduce: Literal["concat", "sum"] | None
) -> None:
    whole = np.arange(100, dtype=np.float32)
    found: list[Any] = []
    with Client(endpoints(pools)) as client:
        await_serving(client, 2)

        def scatter() -> None:
            found.append(client.scatter("slow", whole, signature="double", pieces=100, reduce=reduce))

        thread = threading.Thread(target=scatter)
        thread.start()
        with pools[0].client() as first:
            eventually(lambda: first.status().answered.get("done", 0) > 2)
        assert whose_jobs(client, pools[0]) > 2, "the pool has some when it dies"
        pools[0].running.kill()
        thread.join(60)
        (answer,) = found
        if reduce is None:
            assert [piece["y"].tolist() for piece in answer] == [[2.0 * n] for n in range(100)]
        else:
            assert answer["y"].tolist() == ((2 * whole).tolist() if reduce == "concat" else [9900.0])
        again = client.scatter("slow", whole, signature="double", reduce="concat")
        assert again["y"].tolist() == (2 * whole).tolist()
        assert set(whose(client)) == {2}


def test_a_scatter_of_a_model_that_keeps_state_says_so_when_its_pool_dies(tmp_path: Path) -> None:
    """And what it has not started by then never runs."""
    ledgers = [tmp_path / "one", tmp_path / "two"]
    configs = [MODEL.format("counter", f"counter?{ledger}&run_ms=20", "") for ledger in ledgers]
    with started(*configs) as pools, Client(endpoints(pools), reconnect_timeout=1.0) as client:
        with ThreadPoolExecutor(1) as threads:
            answer = threads.submit(client.scatter, "counter", np.arange(60), signature="gated", pieces=60)
            eventually(lambda: any(ledger.read_bytes() for ledger in ledgers))
            [keeper] = [n for n, ledger in enumerate(ledgers) if ledger.read_bytes()]
            pools[keeper].running.kill()
            assert isinstance(answer.exception(60), errors.WorkerLost | errors.PoolUnreachable)
        ran = Counter(ledgers[keeper].read_text().split())
        assert max(ran.values()) == 1
        assert not ledgers[1 - keeper].read_bytes()


def test_a_scatter_ends_when_all_pools_are_gone(pools: list[PoolProcess]) -> None:
    with (
        Client(endpoints(pools), connect_timeout=0.5, reconnect_timeout=0.5) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        await_serving(client, 2)
        answer = threads.submit(client.scatter, "slow", np.zeros(500, np.float32), signature="double", pieces=500)
        eventually(lambda: all(whose_jobs(client, pool) for pool in pools))
        for pool in pools:
            pool.running.kill()
        assert isinstance(answer.exception(60), errors.PoolUnreachable)
        with pytest.raises(errors.PoolUnreachable):
            client.scatter("slow", np.zeros(5, np.float32), signature="double")


def test_a_killed_pool_costs_no_job(pools: list[PoolProcess]) -> None:
    """Whoever waits for them: futures, callers of `run`, a map, members of chunks, callers who wait for room."""
    with Client(endpoints(pools)) as client:
        await_serving(client, 2)
        futures = double(client, 100) + client.submit_many("slow", map(row, range(100)), signature="double")
        ends = Ends(futures)
        ran: list[float] = []
        mapped: list[float] = []

        def run() -> None:
            ran.extend(client.run("slow", row(n), signature="double", block=n % 2 == 0)["y"][0] for n in range(30))

        def go_through() -> None:
            mapped.extend(answer["y"][0] for answer in client.map("slow", map(row, range(60)), signature="double"))

        threads = [threading.Thread(target=each) for each in (run, run, go_through)]
        for thread in threads:
            thread.start()
        eventually(lambda: sum(future.done() for future in futures) >= 20)
        assert whose_jobs(client, pools[0]), "the pool has some when it dies"
        pools[0].running.kill()
        for each in (futures[:100], futures[100:]):
            assert_doubled(each)
        for thread in threads:
            thread.join(60)
        assert sorted(ran) == sorted([2.0 * n for n in range(30)] * 2)
        assert mapped == [2.0 * n for n in range(60)]
        eventually(lambda: ends.counts == [1] * 200)
        assert set(whose(client)) == {2}


def whose_jobs(client: Client, pool: PoolProcess) -> int:
    assert client._spread is not None
    return client._spread._choice.pools[pool.endpoint].mine


def test_what_may_have_changed_state_is_not_sent_again(tmp_path: Path) -> None:
    """A killed pool loses its stateful jobs; the file in which each run is a line has none twice."""
    ledgers = [tmp_path / "one", tmp_path / "two"]
    configs = [models(n, MODEL.format("counter", f"counter?{ledger}&run_ms=5", "")) for n, ledger in enumerate(ledgers)]
    with (
        started(*configs) as pools,
        Client(endpoints(pools), reconnect_timeout=1.0) as client,
        Client(endpoints(pools)[::-1]) as other,
    ):
        await_serving(client, 2)
        await_serving(other, 2)
        jobs = [each.submit("counter", n, signature="add") for n in range(1, 60) for each in (client, other)]
        eventually(lambda: sum(job.done() for job in jobs) >= 10)
        [keeper] = [n for n, ledger in enumerate(ledgers) if ledger.read_bytes()]
        pools[keeper].running.kill()
        kinds = Counter(type(job.exception(60)) for job in jobs)
        assert kinds.keys() <= {type(None), errors.WorkerLost, errors.PoolUnreachable}, kinds
        assert kinds[errors.PoolUnreachable]
        assert kinds[type(None)]
        runs = Counter(ledgers[keeper].read_text().split())
        assert max(runs.values()) <= 2, "one of each client"
        assert not ledgers[1 - keeper].read_bytes(), "no other pool takes its place"
        began = time.monotonic()
        with pytest.raises(errors.PoolUnreachable, match=r"counter.*keeps its state"):
            client.run("counter", 1, signature="add", timeout=60)
        assert time.monotonic() - began < 30
        assert set(whose(client)) == {1 - keeper}


def test_a_stateful_job_that_may_have_started_is_not_run_by_the_pool_that_returns(tmp_path: Path) -> None:
    """The other jobs have waited for it; each run is a line of the file, and none is there twice."""
    ledgers = [tmp_path / "one", tmp_path / "two"]
    configs = [MODEL.format("counter", f"counter?{ledger}&run_ms=20", "") for ledger in ledgers]
    with started(*configs) as pools, Client(endpoints(pools), reconnect_timeout=40) as client:
        jobs = [client.submit("counter", n, signature="add", timeout=60) for n in range(1, 61)]
        eventually(lambda: sum(job.done() for job in jobs) >= 5)
        [keeper] = [n for n, ledger in enumerate(ledgers) if ledger.read_bytes()]
        pools[keeper].running.kill()
        pools[keeper].running.wait(10)
        assert not all(job.done() for job in jobs)
        pools[keeper].log.unlink()
        pools[keeper].start().await_ready()
        later = client.submit("counter", 100, signature="add", timeout=60)
        kinds = Counter(type(job.exception(90)) for job in jobs)
        assert kinds.keys() == {type(None), errors.WorkerLost}, kinds
        assert later.exception(60) is None
        runs = Counter(ledgers[keeper].read_text().split())
        assert max(runs.values()) == 1, runs
        assert not ledgers[1 - keeper].read_bytes()


def test_a_drained_pool_costs_no_job(pools: list[PoolProcess]) -> None:
    with Client(endpoints(pools)) as client:
        await_serving(client, 2)
        futures = double(client, 200)
        ends = Ends(futures)
        eventually(lambda: sum(future.done() for future in futures) >= 20)
        pools[0].running.send_signal(signal.SIGTERM)
        more = double(client, 50)
        assert_doubled(futures)
        assert_doubled(more)
        eventually(lambda: ends.counts == [1] * 200)
        assert pools[0].wait() == 0


def test_a_frozen_pool_costs_no_job_and_gets_no_new_ones(
    pools: list[PoolProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pool.client.pulse.PING_S", 0.2)
    monkeypatch.setattr("pool.client.pulse.SILENCE_S", 4.0)
    monkeypatch.setattr("pool.client.spread.spread.SILENT_S", 0.5)
    with Client(endpoints(pools)) as client:
        await_serving(client, 2)
        futures = double(client, 100)
        eventually(lambda: sum(future.done() for future in futures) >= 10)
        os.kill(pools[0].pid, signal.SIGSTOP)
        try:
            eventually(lambda: PoolState.SILENT in states(client))
            assert set(whose(client)) == {2}
            assert not all(future.done() for future in futures), "the frozen one has some of them"
            assert_doubled(futures)
        finally:
            os.kill(pools[0].pid, signal.SIGCONT)
        await_serving(client, 2)
        eventually(lambda: set(whose(client)) == {1, 2})


def test_a_pool_that_returns_is_used_again(pools: list[PoolProcess]) -> None:
    with Client(endpoints(pools)) as client:
        await_serving(client, 2)
        pools[0].running.kill()
        pools[0].running.wait(10)
        assert set(whose(client)) == {2}
        pools[0].log.unlink()
        pools[0].start().await_ready()
        eventually(lambda: set(whose(client)) == {1, 2})


def test_jobs_wait_for_the_only_pool_that_is_left_and_for_the_first_that_comes(pools: list[PoolProcess]) -> None:
    with Client(endpoints(pools)) as client:
        await_serving(client, 2)
        for pool in pools:
            pool.running.kill()
            pool.running.wait(10)
            pool.log.unlink()
        futures = double(client, 10)
        waits = threading.Thread(target=client.run, args=("whose", row(0)))
        waits.start()
        eventually(lambda: states(client) == [PoolState.SOUGHT] * 2)
        pools[1].start().await_ready()
        assert_doubled(futures)
        waits.join(20)
        assert not waits.is_alive()


def test_without_any_pool_each_job_ends_in_time(tmp_path: Path) -> None:
    nowhere = [f"ipc://{tmp_path}/{name}.sock" for name in "ab"]
    with Client(nowhere, connect_timeout=0.3) as client:
        began = time.monotonic()
        futures = [client.submit("m", 1), *client.submit_many("m", [row(0)] * 3)]
        with pytest.raises(errors.PoolUnreachable):
            client.run("m", 1)
        for future in futures:
            assert isinstance(future.exception(20), errors.PoolUnreachable)
        with pytest.raises(errors.DeadlineExceeded):
            client.run("m", 1, timeout=0.05)
        assert time.monotonic() - began < 15


def test_a_model_that_one_pool_has_goes_there_also_if_it_is_loaded_later() -> None:
    only = MODEL.format("only", "echo", "")
    with (
        started(models(1, only), models(2)) as pools,
        Client(endpoints(pools)) as client,
        pools[1].client() as second,
    ):
        await_serving(client, 2)
        for _ in range(20):
            assert client.run("only", row(3), timeout=20)["x"] == [3]
        with pytest.raises(errors.ModelNotFound, match="nothing"):
            client.run("nothing", row(0))
        second.load("later", "stub:echo")
        for _ in range(5):
            assert client.run("later", row(4), timeout=20)["x"] == [4]
        second.unload("later")
        eventually(lambda: isinstance(client.submit("later", row(4)).exception(20), errors.ModelNotFound))


def test_overloaded_is_tried_at_one_other_pool() -> None:
    """A job that finds one pool full goes to the other. Where both are, it fails, unless its caller waits for room."""
    faults = MODEL.format("faults", "faults", "")
    with (
        started(faults, faults, rest="[queue]\nmax_jobs = 1") as pools,
        Client(endpoints(pools)) as client,
        pools[0].client() as one,
        pools[1].client() as other,
    ):
        client.run("faults", {}, signature="pid")
        eventually(lambda: states(client) == [PoolState.SERVING] * 2)
        fill(one)
        assert all(client.run("faults", {}, signature="pid", timeout=20) for _ in range(20))
        last = fill(other)
        with pytest.raises(errors.Overloaded):
            client.run("faults", {}, signature="pid")
        assert isinstance(client.submit("faults", {}, signature="pid").exception(20), errors.Overloaded)
        patient = [client.submit("faults", {}, signature="pid", block=True, timeout=30) for _ in range(4)]
        assert [each.exception(40) for each in patient] == [None] * 4
        assert last.exception(20) is None


def fill(client: Client) -> "Future[Any]":
    """The pool has no room for a while."""
    future = client.submit("faults", {"seconds": np.float64(4.0)}, signature="sleep")
    eventually(lambda: client.status().queue.jobs == 1)
    return future


def test_a_job_that_has_moved_can_be_cancelled(pools: list[PoolProcess]) -> None:
    with Client(endpoints(pools)) as client:
        await_serving(client, 2)
        futures = double(client, 100) + client.submit_many("slow", map(row, range(100)), signature="double")
        eventually(lambda: sum(future.done() for future in futures) >= 10)
        pools[0].running.kill()
        eventually(lambda: PoolState.SOUGHT in states(client))
        cancelled = [future for future in futures if future.cancel()]
        assert cancelled
        assert len(list(as_completed(futures, timeout=30))) == 200
        with pools[1].client() as second:
            eventually(lambda: second.status().queue.jobs == 0)
        eventually(lambda: whose_jobs(client, pools[1]) == 0)


def test_sessions_keep_to_one_pool_and_say_so_when_it_is_gone(pools: list[PoolProcess]) -> None:
    """The stub has no graph to run, but each worker that is asked says so, with its pool's number of the job."""
    with Client(endpoints(pools), reconnect_timeout=0.5, connect_timeout=0.5) as client:
        await_serving(client, 2)
        assert client._spread is not None
        homes = {client._home("slow", private=False)() for _ in range(10)}
        assert len(homes) == 1
        # A pool that was heard while a job ran there counts as busy for a second.
        eventually(lambda: len({client._home("slow", private=True)() for _ in range(40)}) == 2)
        [home] = homes
        [gone] = [pool for pool in pools if pool.endpoint == home._peer.endpoint]
        with client.session("slow") as session:
            gone.running.kill()
            with pytest.raises(errors.PoolUnreachable):
                session.run("x")


def test_what_is_about_one_pool_is_asked_of_that_pool(pools: list[PoolProcess]) -> None:
    with Client(endpoints(pools)) as client:
        await_serving(client, 2)
        for ask in (client.status, client.metrics, client.explain, client.reload, client.stop):
            with pytest.raises(errors.InvalidState, match=r"client\.pools"):
                ask()
        with pytest.raises(errors.InvalidInput, match=r"client\.pools"):
            client.run("whose", row(0), device="cpu:0")
        assert [each.endpoint for each in client.pools] == endpoints(pools)
        assert [each.status().endpoint for each in client.pools] == endpoints(pools)
        assert client.pools[1].run("whose", row(0), device="cpu:0")
        assert {each.name for each in client.models()} == {"whose", "slow"}
        assert client.is_ready()
        assert client.is_ready("slow")
        client.wait_ready("slow", 10)
        with pytest.raises(errors.ModelNotFound):
            client.is_ready("nothing")
        pools[0].running.kill()
        client.wait_ready("slow", 10)
    with pytest.raises(errors.InvalidState):
        client.run("whose", row(0))


class Waited(Exception):
    """By who is told that he waits."""


def leave(why: str) -> None:
    raise Waited(why)


def test_a_model_that_no_pool_can_load_is_not_waited_for() -> None:
    bad = MODEL.format("bad", "cannot-load", "")
    with started(models(1, bad), models(2, bad), models(3)) as pools:
        with Client(endpoints(pools)) as client:
            assert client.is_ready("bad") is False
            with pytest.raises(errors.ModelNotFound, match=r"bad could not be loaded in slot 0: .*no model 'bad'"):
                client.wait_ready("bad", on_wait=leave)
            with pytest.raises(errors.ModelNotFound, match="no model 'nobody' in the 3 pools"):
                client.wait_ready("nobody", on_wait=leave)
            with pytest.raises(ValueError, match="timeout is nan"):
                client.wait_ready("bad", float("nan"))

        async def wait() -> None:
            async with AsyncClient(endpoints(pools)) as client:
                await client.wait_ready("bad", on_wait=leave)

        with pytest.raises(errors.ModelNotFound, match="bad could not be loaded"):
            asyncio.run(wait())
        pools[1].running.kill()
        with Client(endpoints(pools)) as client:
            for model in ("bad", "nobody"):
                with pytest.raises(Waited, match=re.escape(pools[1].endpoint)):  # it may load it when it comes back
                    client.wait_ready(model, on_wait=leave)


def test_a_new_client_asks_all_pools_that_come(tmp_path: Path) -> None:
    """And not only the first: what they have differs. One that is away delays nobody for long."""
    away = f"ipc://{tmp_path}/away.sock"
    with started(*(MODEL.format(name, "echo", "") for name in ("one", "other"))) as pools:
        for _ in range(5):
            with Client(endpoints(pools)) as client:
                assert {each.name for each in client.models()} == {"one", "other"}
            for name in ("one", "other"):
                with Client(endpoints(pools)) as client:
                    assert client.is_ready(name)
        with Client([away, *endpoints(pools)], connect_timeout=60) as client:
            began = time.monotonic()
            assert client.is_ready("other")
            assert {each.name for each in client.models()} == {"one", "other"}
            assert time.monotonic() - began < 30, "half of what it looks for the one that is away"
    with (
        Client([away, f"{away}2"], connect_timeout=0.3) as nobody,
        pytest.raises(errors.PoolUnreachable, match=r"away\.sock.*away\.sock2"),
    ):
        nobody.models()


def test_the_set_of_pools_changes_while_jobs_run(pools: list[PoolProcess]) -> None:
    with Client(pools[0].endpoint) as client:
        futures = double(client, 40)
        client._replace(endpoints(pools))
        await_serving(client, 2)
        futures += double(client, 40)
        client._replace([pools[1].endpoint])
        assert set(whose(client)) == {2}
        assert_doubled(futures[:40])
        assert_doubled(futures[40:])


def test_a_forked_child_makes_its_own_connections(pools: list[PoolProcess]) -> None:
    with Client(endpoints(pools)) as client:
        await_serving(client, 2)
        futures = double(client, 40)
        pid = os.fork()
        if not pid:
            try:
                lost = isinstance(futures[-1].exception(10), errors.PoolUnreachable)
                os._exit(0 if lost and set(whose(client, 20)) <= {1, 2} else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert_doubled(futures)


def test_a_dropped_client_ends_with_its_last_answer(pools: list[PoolProcess]) -> None:
    client = Client(endpoints(pools))
    await_serving(client, 2)
    futures = double(client, 30)
    del client
    assert_doubled(futures)
    eventually(lambda: not [each for each in threading.enumerate() if each.name in ("pool-spread", "pool-client")])


def test_the_environment_names_several(pools: list[PoolProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOL_ENDPOINT", ", ".join(endpoints(pools)))
    with Client() as client:
        await_serving(client, 2)
        assert set(whose(client)) == {1, 2}
    with pytest.raises(errors.InvalidInput):
        Client([])
    with pytest.raises(TypeError):
        Client([3])  # type: ignore[list-item]
    with Client([pools[0].endpoint] * 2) as one:
        assert one._spread is None, "the same pool twice is one pool"

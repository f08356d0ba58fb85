"""What the benchmarks measure from outside: clients in processes of their own, and the calls of a lone job."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import calls, crowd_process
from benchmarks.cases import WrongAnswer, rows_of
from benchmarks.crowd import Crowd
from benchmarks.line_process import Ended
from benchmarks.run import Run
from benchmarks.turns import Turns
from pool import Client
from support.pool_process import PoolProcess, stub_config

pytestmark = pytest.mark.bench

CASE = replace(calls.STUB, name="mlp")  # as the benchmarks call it
MODEL = '[[model]]\nname = "mlp"\npath = "stub:rows"\n'
SHORT_S = 0.3
# A lone job's calls at most. Lower them with what makes the way of a job shorter; nothing raises them.
CEILINGS = {"client": 300, "pool": 220, "lane": 95}
SOCKETS = 13  # 12, and a worker's beat now and then


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    running = PoolProcess(stub_config(devices='["cpu"]', models=MODEL)).start()
    try:
        running.await_ready()
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


def turns(factor: float = 2.0) -> Turns:
    rows = rows_of(CASE)
    return Turns(CASE, rows, [row * factor for row in rows])


def run_of(folder: Path, factor: float = 2.0) -> Run:
    CASE.write(folder)
    reference: Any = SimpleNamespace(turns=turns(factor))
    return Run(folder, {"mlp": CASE}, {"mlp": reference}, 1, SHORT_S, lambda _: None)


def test_clients_in_two_processes_have_one_job_each_and_the_pools_cost_is_theirs(
    pool: PoolProcess, tmp_path: Path
) -> None:
    with pool.client() as client, Crowd(run_of(tmp_path), client, clients=4, processes=2) as crowd:
        before = done(client)
        turn = crowd.turn(SHORT_S)
        jobs = done(client) - before
    assert jobs >= 4
    assert turn.rate > 0
    assert 0 < turn.p50 < 60
    for processor_s, wake_ups in (turn.clients, turn.pool, turn.lanes):
        assert processor_s > 0
        assert wake_ups > 0
    assert turn.processor_s == sum(of[0] for of in (turn.clients, turn.pool, turn.lanes))


def done(client: Client) -> int:
    return sum(int(slot.jobs_done) for slot in client.status().slots)


def test_a_crowd_that_is_answered_wrongly_gives_no_figure(pool: PoolProcess, tmp_path: Path) -> None:
    with pool.client() as client, pytest.raises(Ended, match="WrongAnswer"):
        Crowd(run_of(tmp_path, factor=3.0), client, clients=2, processes=1)


def test_each_client_of_a_process_begins_with_a_row_of_its_own() -> None:
    fed: list[bytes] = []

    class Told:
        def run(self, _: str, row: Any, **__: object) -> dict[str, Any]:
            fed.append(row.tobytes())
            return {"y": row * 2}

    clients = [cast(Client, Told()) for _ in range(3)]
    told = crowd_process.turn(clients, turns(), 0.001)
    assert told["jobs"] == len(fed) >= 3
    assert {row.tobytes() for row in turns().rows[:3]} <= set(fed)
    with pytest.raises(WrongAnswer):
        crowd_process.turn(clients, turns(3.0), 0.001)


def test_a_lone_job_makes_no_more_calls_than_it_did(tmp_path: Path) -> None:
    counts = calls.counted(calls.STUB, tmp_path)
    for role, most in CEILINGS.items():
        assert 0.5 * calls.BUDGETS[f"calls_{role}"] < counts["calls"][role] <= most, counts
    assert 6 <= sum(counts["sockets"].values()) <= SOCKETS, counts

"""What callers see of the scheduler: batches, fairness, deadlines, cancellation, bounds."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from support.pools import StartPool, until

GATED = """
[pool]
devices = ["cpu"]
lanes = 1
[queue]
max_jobs = {max_jobs}
[[model]]
name = "double"
path = "stub:double?log={folder}/ledger&gate={folder}/gate"
batching = "on"
max_batch = {max_batch}
allowed_batch_sizes = {sizes}
batch_wait = "{wait}"
[[model]]
name = "plain"
path = "stub:double?log={folder}/ledger&gate={folder}/gate"
"""


def config(folder: Path, **changes: Any) -> str:
    return GATED.format(**{"folder": folder, "max_jobs": 1000, "max_batch": 8, "sizes": [], "wait": "off", **changes})


def row(value: float, rows: int = 1) -> dict[str, Any]:
    return {"x": np.full((rows, 1), value, np.float32)}


def ledger(folder: Path) -> list[list[float]]:
    """The first values of the rows of each run, in order."""
    return [[float(each) for each in line.split()[1:]] for line in (folder / "ledger").read_text().splitlines()]


def hold(client: Client, model: str = "double") -> Any:
    """A job that waits at the gate in the only lane."""
    first = client.submit(model, row(1000.0))
    until(lambda: any(each["running"] for each in client.status()["models"]), "the lane to be busy")
    return first


def test_jobs_of_several_clients_share_batches_and_each_gets_its_own(start_pool: StartPool, tmp_path: Path) -> None:
    pool = start_pool(config(tmp_path))
    with Client(pool.endpoint) as one, Client(pool.endpoint) as other:
        hold(one)
        futures = [(n, (one if n % 2 else other).submit("double", row(float(n)))) for n in range(1, 17)]
        until(lambda: one.status()["models"][0]["waiting"] == 16, "all to wait")
        (tmp_path / "gate").touch()
        assert all(future.result(30)["y"].item() == 2 * n for n, future in futures)
    assert [len(run) for run in ledger(tmp_path)] == [1, 8, 8], "the premise: they ran together"


def test_jobs_of_a_model_that_nobody_vouches_for_run_alone(start_pool: StartPool, tmp_path: Path) -> None:
    pool = start_pool(config(tmp_path))
    with Client(pool.endpoint) as client:
        hold(client, "plain")
        futures = [client.submit("plain", row(float(n))) for n in range(1, 9)]
        until(lambda: client.status()["models"][1]["waiting"] == 8, "all to wait")
        (tmp_path / "gate").touch()
        assert [future.result(30)["y"].item() for future in futures] == [2.0 * n for n in range(1, 9)]
    assert {len(run) for run in ledger(tmp_path)} == {1}


def test_batches_are_padded_to_the_allowed_sizes_and_the_padding_is_cut_off(
    start_pool: StartPool, tmp_path: Path
) -> None:
    pool = start_pool(config(tmp_path, sizes=[4, 8]))
    (tmp_path / "gate").touch()
    with Client(pool.endpoint) as client:
        for rows in (1, 3, 5, 8):
            assert client.run("double", row(float(rows), rows))["y"].tolist() == [[2.0 * rows]] * rows
    assert [len(run) for run in ledger(tmp_path)] == [4, 4, 8, 8]


def test_priorities_go_first_and_a_flood_stands_behind_itself(start_pool: StartPool, tmp_path: Path) -> None:
    pool = start_pool(config(tmp_path, max_batch=1))
    with Client(pool.endpoint) as flood, Client(pool.endpoint) as light:
        hold(flood)
        futures = [flood.submit("double", row(float(n))) for n in range(1, 51)]
        until(lambda: flood.status()["models"][0]["waiting"] == 50, "the flood to wait")
        futures += [light.submit("double", row(200.0)), light.submit("double", row(300.0), priority=5)]
        until(lambda: flood.status()["models"][0]["waiting"] == 52, "the light client's jobs to wait")
        (tmp_path / "gate").touch()
        for future in futures:
            future.result(30)
    order = [run[0] for run in ledger(tmp_path)]
    assert order[:2] == [1000.0, 300.0]
    assert order.index(200.0) <= 3, "it does not stand behind fifty jobs of another client"


def test_a_deadline_is_kept_while_the_lane_is_busy_and_such_a_job_never_starts(
    start_pool: StartPool, tmp_path: Path
) -> None:
    pool = start_pool(config(tmp_path))
    with Client(pool.endpoint) as client:
        first = hold(client)
        began = time.monotonic()
        with pytest.raises(errors.DeadlineExceeded):
            client.run("double", row(7.0), timeout=0.2)
        assert time.monotonic() - began < 1.2, "the pool answered, not the client's last resort"
        late = client.submit("double", row(8.0), timeout=0.1)
        assert isinstance(late.exception(10), errors.DeadlineExceeded)
        (tmp_path / "gate").touch()
        first.result(30)
        client.run("double", row(9.0))
    assert [7.0] not in ledger(tmp_path)
    assert [8.0] not in ledger(tmp_path)


def test_a_cancelled_job_that_waits_never_starts(start_pool: StartPool, tmp_path: Path) -> None:
    pool = start_pool(config(tmp_path, max_batch=1))
    with Client(pool.endpoint) as client:
        first = hold(client)
        futures = [client.submit("double", row(float(n))) for n in range(1, 11)]
        until(lambda: client.status()["models"][0]["waiting"] == 10, "all to wait")
        assert all(future.cancel() for future in futures[::2])
        until(lambda: client.status()["models"][0]["waiting"] == 5, "the others to be left")
        (tmp_path / "gate").touch()
        first.result(30)
        assert [future.result(30)["y"].item() for future in futures[1::2]] == [4.0, 8.0, 12.0, 16.0, 20.0]
    assert [run[0] for run in ledger(tmp_path)] == [1000.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_past_a_bound_a_job_is_refused_at_once_and_others_still_get_in(start_pool: StartPool, tmp_path: Path) -> None:
    pool = start_pool(config(tmp_path, max_jobs=90))
    with Client(pool.endpoint) as flood, Client(pool.endpoint) as other:
        hold(flood)
        futures = [flood.submit("double", row(1.0)) for _ in range(200)]
        refused = [future for future in futures if future.done() and future.exception()]
        refused = until(lambda: [f for f in futures if f.done()], "the refusals")
        assert isinstance(refused[0].exception(), errors.Overloaded)
        assert refused[0].exception().retryable
        mine = other.submit("double", row(5.0))
        (tmp_path / "gate").touch()
        assert mine.result(30)["y"].item() == 10.0
        done = [future for future in futures if future.exception(30) is None]
        assert len(done) == 79, "one client alone holds eight ninths of the room"


def test_batch_wait_gathers_company(start_pool: StartPool, tmp_path: Path) -> None:
    pool = start_pool(config(tmp_path, max_batch=4, wait="20s"))
    (tmp_path / "gate").touch()
    with Client(pool.endpoint) as client:
        futures = [client.submit("double", row(float(n))) for n in range(1, 5)]
        assert [future.result(10)["y"].item() for future in futures] == [2.0, 4.0, 6.0, 8.0]
    assert [len(run) for run in ledger(tmp_path)] == [4], "a full batch waits no longer"


def test_many_threads_share_a_client(start_pool: StartPool, tmp_path: Path) -> None:
    pool = start_pool(config(tmp_path))
    (tmp_path / "gate").touch()
    wrong: list[Any] = []
    with Client(pool.endpoint) as client:

        def call(thread: int) -> None:
            for n in range(20):
                found = client.run("double", row(thread * 100.0 + n))["y"].item()
                if found != 2 * (thread * 100.0 + n):
                    wrong.append((thread, n, found))

        threads = [threading.Thread(target=call, args=(thread,)) for thread in range(80)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong
        assert not any(thread.is_alive() for thread in threads)

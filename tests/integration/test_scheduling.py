"""What callers see of the scheduler: batches, fairness, deadlines, bounds. One pool with one lane, and gates."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool import Client, errors
from support.pools import RunningPool, row, until

MODEL = """
[[model]]
name = "{name}"
path = "stub:double?log={{folder}}/{name}&gate={{folder}}/gate"
batching = "on"
"""
MODELS = {
    "joined": "max_batch = 8",
    "single": "max_batch = 1",
    "padded": "max_batch = 8\nallowed_batch_sizes = [4, 8]",
    "patient": 'max_batch = 4\nbatch_wait = "20s"',
}
CONFIG = '[pool]\ndevices = ["cpu"]\nlanes = 1\n[queue]\nmax_jobs = 90\n'
CONFIG += "".join(MODEL.format(name=name) + options for name, options in MODELS.items())


@pytest.fixture
def client(running: RunningPool) -> Iterator[Client]:
    """Its jobs wait at the gate."""
    (running.folder / "gate").unlink(missing_ok=True)
    for name in MODELS:
        (running.folder / name).unlink(missing_ok=True)
    with Client(running.endpoint) as made:
        yield made
        (running.folder / "gate").touch()
        until(lambda: not made.status()["queue"]["jobs"], "all jobs have ended")


@pytest.fixture
def other(running: RunningPool) -> Iterator[Client]:
    with Client(running.endpoint) as made:
        yield made


@pytest.fixture
def gate(running: RunningPool) -> Path:
    return running.folder / "gate"


def ledger(gate: Path, model: str) -> list[list[float]]:
    """The first values of the rows of each run, in order."""
    return [[float(each) for each in line.split()[1:]] for line in (gate.parent / model).read_text().splitlines()]


def hold(client: Client, model: str) -> Any:
    """A job that waits at the gate in the only lane."""
    first = client.submit(model, row(1000.0))
    until(lambda: any(each["running"] for each in client.status()["models"]), "the lane to be busy")
    return first


def waits(client: Client, count: int) -> None:
    until(lambda: sum(each["waiting"] for each in client.status()["models"]) == count, f"{count} jobs to wait")


def test_jobs_of_several_clients_share_batches_and_each_gets_its_own(client: Client, other: Client, gate: Path) -> None:
    hold(client, "joined")
    futures = [(n, (client if n % 2 else other).submit("joined", row(float(n)))) for n in range(1, 17)]
    waits(client, 16)
    gate.touch()
    assert all(future.result(30)["y"].item() == 2 * n for n, future in futures)
    assert [len(run) for run in ledger(gate, "joined")] == [1, 8, 8], "the premise: they ran together"


def test_batches_are_padded_to_the_allowed_sizes_and_the_padding_is_cut_off(client: Client, gate: Path) -> None:
    hold(client, "padded")
    futures = [client.submit("padded", row(float(rows), rows)) for rows in (2, 3)]
    waits(client, 2)
    gate.touch()
    for rows, future in zip((2, 3), futures, strict=True):
        assert future.result(30)["y"].tolist() == [[2.0 * rows]] * rows
    assert [len(run) for run in ledger(gate, "padded")] == [4, 8]


def test_priorities_go_first_and_a_flood_stands_behind_itself(client: Client, other: Client, gate: Path) -> None:
    hold(client, "single")
    futures = [client.submit("single", row(float(n))) for n in range(1, 51)]
    waits(client, 50)
    futures += [other.submit("single", row(200.0)), other.submit("single", row(300.0), priority=5)]
    waits(client, 52)
    gate.touch()
    for future in futures:
        future.result(30)
    order = [run[0] for run in ledger(gate, "single")]
    assert order[:2] == [1000.0, 300.0]
    assert order.index(200.0) <= 3, "it does not stand behind fifty jobs of another client"


def test_a_deadline_is_kept_while_the_lane_is_busy_and_such_a_job_never_starts(client: Client, gate: Path) -> None:
    first = hold(client, "joined")
    began = time.monotonic()
    with pytest.raises(errors.DeadlineExceeded):
        client.run("joined", row(7.0), timeout=0.2)
    assert time.monotonic() - began < 1.2, "the pool answered, not the client's last resort"
    late = client.submit("joined", row(8.0), timeout=0.1)
    assert isinstance(late.exception(10), errors.DeadlineExceeded)
    gate.touch()
    first.result(30)
    client.run("joined", row(9.0))
    assert ledger(gate, "joined") == [[1000.0], [9.0]]


def test_past_a_bound_a_job_is_refused_at_once_and_others_still_get_in(
    client: Client, other: Client, gate: Path
) -> None:
    hold(client, "joined")
    futures = [client.submit("joined", row(1.0)) for _ in range(200)]
    refused = until(lambda: [f for f in futures if f.done()], "the refusals")
    assert isinstance(refused[0].exception(), errors.Overloaded)
    assert refused[0].exception().retryable
    mine = other.submit("joined", row(5.0))
    waits(client, 80)
    gate.touch()
    assert mine.result(30)["y"].item() == 10.0
    done = [future for future in futures if future.exception(30) is None]
    assert len(done) == 79, "one client alone holds eight ninths of the room"


def test_batch_wait_gathers_company(client: Client, gate: Path) -> None:
    gate.touch()
    futures = [client.submit("patient", row(float(n))) for n in range(1, 5)]
    assert [future.result(10)["y"].item() for future in futures] == [2.0, 4.0, 6.0, 8.0]
    assert [len(run) for run in ledger(gate, "patient")] == [4], "a full batch waits no longer"

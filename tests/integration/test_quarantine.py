"""Jobs that kill their workers: kept in the state folder, as they were, and explained."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client.payload import encode_call
from pool.kept.quarantine import KeptJob, load
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

ROWS_MODEL = """
[[model]]
name = "rows"
path = "stub:rows"
batching = true
devices = "all"
"""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def pool(state: Path) -> Iterator[PoolProcess]:
    config = stub_config(f'state = "{state}"', models=ROWS_MODEL, rest="[quarantine]\nkeep = 2\n")
    with pool_process(config) as running:
        yield running


def poison(client: Client, value: float) -> KeptJob:
    """Has the pool quarantine a job, and returns it as its log says where it is."""
    inputs = {"x": np.array([1.0, value], np.float32)}
    with pytest.raises(errors.Quarantined):
        client.run("rows", inputs, signature="kill", outputs=["y"], timeout=60.0)
    payload: list[Any] = encode_call("rows", inputs)[1]  # without shared memory it has bytes alone
    return KeptJob("rows", "kill", ("y",), 2, "", tuple(payload))


def test_a_killer_is_kept_for_replay_and_the_pool_goes_on(pool: PoolProcess, client: Client, state: Path) -> None:
    expected = poison(client, -1.0)
    pool.await_log("pool submit --replay ")
    (path,) = (state / "quarantine").iterdir()
    assert f"pool submit --replay {path}" in pool.text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = load(path)
    assert (kept.model, kept.signature, kept.outputs, kept.rows, kept.payload) == (
        expected.model,
        expected.signature,
        expected.outputs,
        expected.rows,
        expected.payload,
    )
    assert kept.history.count("died: SIGKILL") >= 2
    assert client.run("rows", np.ones(3, np.float32), signature="double")["y"].tolist() == [2.0] * 3


def test_no_more_are_kept_than_the_configuration_says(pool: PoolProcess, client: Client, state: Path) -> None:
    for number in range(3):
        poison(client, -2.0 - number)
        eventually(lambda said=number + 2: pool.text().count("pool submit --replay ") >= said)  # type: ignore[misc]
    files = sorted((state / "quarantine").iterdir())
    assert len(files) == 2
    last = max(files, key=os.path.getmtime)
    assert np.frombuffer(load(last).payload[1], np.float32).tolist() == [1.0, -4.0]


def test_a_jobs_story_is_told_by_its_number(client: Client) -> None:
    future = client.submit("rows", np.ones(3, np.float32), signature="double")
    future.result(20)
    number = future.timeline.job  # type: ignore[union-attr]
    told = client.explain(number)
    assert (told.job, told.model, told.state) == (number, "rows", "DONE")
    assert any("slot" in line for line in told.history)
    assert client.explain().jobs[0].job == number


def test_a_job_that_nobody_remembers(client: Client) -> None:
    with pytest.raises(errors.InvalidInput, match="this pool knows no job '123456789'; it remembers only recent"):
        client.explain(123456789)


def test_the_status_says_what_each_model_has_used(client: Client) -> None:
    client.run("rows", np.ones(3, np.float32), signature="double")
    status = client.status()
    assert status.queue.queued == 0
    (model,) = status.models
    assert (model.name, model.queued_jobs) == ("rows", 0)
    assert model.device_s > 0.0
    (listed,) = client.models()
    assert listed.scheduling.name == "rows"

"""Models that write state, against a real pool of two workers with stub models."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pool import Client, errors
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, pid_of

MODELS = """
[[model]]
name = "counter"
path = "stub:counter"
devices = "all"
[[model]]
name = "each"
path = "stub:counter"
devices = "all"
stateful = false
[[model]]
name = "kept"
path = "stub:tally"
devices = "all"
stateful = true
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    with pool_process(stub_config(models=MODELS)) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def home(client: Client, model: str) -> int:
    (found,) = [each.scheduling.affinity for each in client.models() if each.name == model]
    assert isinstance(found, int)
    return found


def counted(client: Client, model: str) -> list[int]:
    """What 200 jobs from four threads are answered."""
    with ThreadPoolExecutor(4) as threads:
        return sorted(threads.map(lambda _: int(client.run(model, 1, signature="add")["total"]), range(200)))


@pytest.mark.parametrize("model", ["counter", "kept"])
def test_two_workers_count_as_one(client: Client, pool: PoolProcess, model: str) -> None:
    before = int(client.run(model, 0, signature="add")["total"])
    assert counted(client, model) == list(range(before + 1, before + 201))
    pool.await_log(f"model {model} writes state, so its jobs run only in slot {home(client, model)} incarnation")


def test_who_says_that_it_does_not_matter_has_a_counter_in_each_worker(client: Client) -> None:
    pids = [client.submit("each", 1, signature="add", device=f"slot:{slot}") for slot in (0, 1)]
    assert [int(future.result()["total"]) for future in pids] == [1, 1]
    assert max(counted(client, "each")) < 202
    (model,) = [each for each in client.models() if each.name == "each"]
    assert (model.stateful, model.scheduling.affinity) == (False, None)


def test_broadcast_reaches_the_variables_of_each_worker(client: Client) -> None:
    """A job for each slot; a job that asks for one slot runs there, wherever the model's others keep to."""
    before = {slot: int(client.run("counter", 0, signature="add", device=f"slot:{slot}")["total"]) for slot in (0, 1)}
    answers = client.broadcast("counter", 5, signature="add")
    assert {slot: int(answer["total"]) for slot, answer in answers.items()} == {0: before[0] + 5, 1: before[1] + 5}
    after = [int(client.run("counter", 0, signature="add", device=f"slot:{slot}")["total"]) for slot in (0, 1)]
    assert after == [before[0] + 5, before[1] + 5]


def test_the_state_goes_with_its_worker_and_the_next_one_begins_anew(client: Client, pool: PoolProcess) -> None:
    client.run("kept", 7, signature="add")
    slot = home(client, "kept")
    os.kill(pid_of(client.status().slots[slot]), signal.SIGKILL)
    eventually(lambda: home(client, "kept") != slot)
    assert int(client.run("kept", 5, signature="add")["total"]) == 5
    pool.await_log(f"writes state, which was lost with slot {slot} incarnation 1")  # its thread may be late
    eventually(lambda: all(each.state == "READY" for each in client.status().slots))
    assert int(client.run("kept", 5, signature="add")["total"]) == 10, "and keeps to it"


def test_a_job_that_may_have_counted_is_not_run_again(client: Client, pool: PoolProcess) -> None:
    marker = pool.state / "marker"
    with pytest.raises(errors.WorkerLost) as raised:
        client.run("kept", {"signal": 9, "marker": str(marker)}, signature="kill_once")
    assert not raised.value.retryable
    eventually(lambda: all(each.state == "READY" for each in client.status().slots))


def test_a_restart_loses_what_was_written_and_no_job(client: Client, pool: PoolProcess) -> None:
    slot = home(client, "counter")
    futures = [client.submit("counter", 1, signature="add") for _ in range(20)]
    incarnation = client.restart(slot)
    futures += [client.submit("counter", 1, signature="add") for _ in range(20)]
    assert len([future.result() for future in futures]) == 40
    eventually(lambda: client.status().slots[slot].incarnation == incarnation)
    assert int(client.run("counter", 0, signature="add")["total"]) <= 40
    pool.await_log(f"model counter writes state, which was lost with slot {slot}")

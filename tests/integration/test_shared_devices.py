"""Several workers on one device, as slots of their own."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from pool import AsyncClient, Placement
from support.commands import run_command
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, pid_of

MODELS = """
[[model]]
name = "a"
path = "stub:faults"
tensorflow = {{ inter_op_parallelism_threads = {threads} }}
[[model]]
name = "b"
path = "stub:faults"
"""


def config(threads: int) -> str:
    return stub_config("workers_per_device = 2", '["cpu"]', MODELS.format(threads=threads))


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    with pool_process(config(1)) as running:
        yield running


def pid(client: object, model: str, device: str | None = None) -> int:
    return int(client.run(model, {}, signature="pid", device=device)["pid"])  # type: ignore[attr-defined]


def test_each_is_a_process_of_its_own_with_a_number_and_the_name_of_the_device(pool: PoolProcess) -> None:
    with pool.client() as client:
        slots = client.status().slots
        assert [(slot.device, slot.models) for slot in slots] == [("cpu:0", ("a",))] * 2 + [("cpu:0", ("b",))] * 2
        pids = [pid_of(slot) for slot in slots]
        assert sorted(pids) == pool.workers()
        assert [pid(client, model, f"slot:{number}") for number, model in enumerate("aabb")] == pids
        assert pid(client, "b", "cpu:0") in pids[2:]


def test_a_worker_is_asked_what_it_runs_where(pool: PoolProcess) -> None:
    with pool.client() as client:
        found = client.placement("b", device="slot:3")
        assert (found.model, found.slot, found.device, found.rules) == ("b", 3, "cpu:0", ())
        assert found.signatures["pid"].nodes[0].device == "/cpu:0"

    async def asked() -> Placement:
        async with AsyncClient(pool.endpoint) as client:
            return await client.placement("b", device="slot:3", timeout=20.0)

    assert asyncio.run(asked()) == found


def test_a_worker_that_dies_takes_none_of_the_others_along(pool: PoolProcess) -> None:
    with pool.client() as client:
        before = [pid_of(slot) for slot in client.status().slots]
        os.kill(before[0], signal.SIGKILL)
        assert pid(client, "a") == before[1]

        def is_followed() -> bool:
            """The other worker may have had the job before the pool had seen the death."""
            slot = client.status().slots[0]
            return slot.state == "READY" and slot.pid != before[0]

        eventually(is_followed)
        assert [slot.state for slot in client.status().slots] == ["READY"] * 4
        assert [slot.pid for slot in client.status().slots][1:] == before[1:]


def test_an_override_that_changes_replaces_its_workers_alone(pool: PoolProcess) -> None:
    with pool.client() as client:
        before = [slot.incarnation for slot in client.status().slots]
        pool.config.write_text(config(2).replace("@endpoint@", pool.endpoint))
        found = run_command(pool, "reload", "--wait")
        assert found.stdout.splitlines() == [
            '[[model]] a tensorflow: {"inter_op_parallelism_threads": 1} → {"inter_op_parallelism_threads": 2}',
            "slots 0, 1 get new workers, one after the other",
        ], found.stderr
        after = [slot.incarnation for slot in client.status().slots]
        assert [more > fewer for fewer, more in zip(before, after, strict=True)] == [True, True, False, False]

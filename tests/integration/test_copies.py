"""A pool uses the GPUs that it is given. Stubs, a fake NVML's four T4s (gpu:0 to gpu:3) and four A100s."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from pool import Client
from pool.wire.records import Failover
from support.commands import in_process
from support.fake_nvml import CARD, OTHER, FakeNvml
from support.pool_process import PoolProcess, pool_process
from support.processes import eventually, pid_of
from support.steady_clients import answers, asked_all_the_time

pytestmark = pytest.mark.replacement

ROW = np.ones((1,), np.float32)


def model(name: str, n: int, memory: str = "9GiB", more: str = "") -> str:
    return f'[[model]]\nname = "{name}"\npath = "stub:tell?n={n}"\ndevice_memory = "{memory}"\n{more}\n'


@contextmanager
def gpus(nvml: FakeNvml, models: str, devices: str) -> Iterator[tuple[PoolProcess, Client]]:
    config = f'[pool]\nendpoint = "@endpoint@"\ndevices = {devices}\n{models}'
    with pool_process(config, nvml.environ) as pool, pool.client() as client:
        yield pool, client


def served(client: Client) -> list[list[str]]:
    """By slot."""
    return [[*slot.models] if slot.state == "READY" else [] for slot in client.status().slots]


def copies(client: Client) -> dict[str, tuple[list[str], str]]:
    return {each.model: ([*each.devices], each.why) for each in client.status().copies}


def everywhere(client: Client, name: str, answer: float) -> None:
    for slot, names in enumerate(served(client)):
        if name in names:
            assert answers(client, name, device=f"slot:{slot}") == answer


def test_one_model_on_four_gpus_uses_them_all_and_gives_way_to_another(nvml: FakeNvml) -> None:
    with gpus(nvml, model("a", 1), "[4, 5, 6, 7]") as (pool, client):
        assert served(client) == [["a"]] * 4
        assert copies(client) == {"a": (["gpu:4", "gpu:5", "gpu:6", "gpu:7"], "it is on every device")}
        everywhere(client, "a", 1.0)
        said = in_process("placement", "a", pool=pool).out
        assert said.startswith("a is on 4 devices: gpu:4, gpu:5, gpu:6, gpu:7; it is on every device\n")
        with asked_all_the_time(pool, "a"):
            client.load("b", "stub:tell?n=2", wait=False)
            eventually(lambda: served(client) == [["a"], ["b"], ["a"], ["b"]], 40)
            everywhere(client, "b", 2.0)
            with asked_all_the_time(pool, "b"):
                found = in_process("restart", "--rolling", pool=pool)
                assert found.status == 0, found.err
            assert served(client) == [["a"], ["b"], ["a"], ["b"]]
            client.unload("b")
            eventually(lambda: served(client) == [["a"]] * 4, 40)


def test_four_models_on_eight_gpus_have_two_each_and_a_fifth_one_takes_the_place_of_a_copy(nvml: FakeNvml) -> None:
    four = "".join(model(name, n) for n, name in enumerate("abcd", 1))
    with gpus(nvml, four, '"auto"') as (pool, client):
        assert served(client) == [["a"], ["b"], ["c"], ["d"]] * 2
        assert copies(client)["a"] == (["gpu:0", "gpu:4"], "every GPU has a model")
        with asked_all_the_time(pool, "a"), asked_all_the_time(pool, "d"):
            pool.config.write_text(pool.config.read_text() + model("e", 5, "12GiB"))
            client.reload()
            eventually(lambda: served(client) == [["e"], ["b"], ["c"], ["d"], ["a"], ["b"], ["c"], ["d"]], 40)
            everywhere(client, "e", 5.0)


@pytest.mark.faults
def test_a_lost_gpu_costs_no_job_while_a_copy_or_its_place_is_left(nvml: FakeNvml) -> None:
    with gpus(nvml, model("a", 1) + model("b", 2), "[0, 1, 2]") as (pool, client):
        assert served(client) == [["a"], ["b"], ["a"]]
        with asked_all_the_time(pool, "a"):
            lose(nvml, client, CARD, 0)
            eventually(lambda: client.status().slots[0].state == "FATAL")
            assert served(client) == [[], ["b"], ["a"]]
            assert client.status().failover == Failover((), ()), "another copy serves"
            nvml.say(CARD)
            client.restart(0)
            eventually(lambda: served(client) == [["a"], ["b"], ["a"]])
            lose(nvml, client, OTHER, 1)
            assert answers(client, "b") == 2.0
            eventually(lambda: sorted(served(client)) == [[], ["a"], ["b"]])
            nvml.say(OTHER)
            client.restart(1)
            eventually(lambda: served(client) == [["a"], ["b"], ["a"]])
            assert answers(client, "b") == 2.0


def lose(nvml: FakeNvml, client: Client, uuid: str, slot: int) -> None:
    nvml.say(uuid, error="GPU is lost", xid=79)
    os.kill(pid_of(client.status().slots[slot]), signal.SIGKILL)


def test_a_model_that_keeps_state_keeps_it_when_its_further_copies_end(nvml: FakeNvml) -> None:
    counter = '[[model]]\nname = "counter"\npath = "stub:counter"\n'
    with gpus(nvml, counter, "[4, 5, 6]") as (pool, client):
        totals = [count(client) for _ in range(5)]
        eventually(lambda: sorted(map(len, served(client))) == [0, 0, 1])
        pool.await_log("model counter keeps state, so it has one copy")
        assert totals + [count(client) for _ in range(5)] == [*range(1, 11)], "no other worker has begun anew"
        (found,) = client.status().copies
        assert (len(found.devices), found.why) == (1, "it keeps state")


def count(client: Client) -> int:
    return int(client.run("counter", {"n": 1}, signature="add", timeout=30)["total"])

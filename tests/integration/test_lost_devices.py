"""GPUs that vanish while the pool runs: their models come up on others, and nobody loses a job. Stubs, a fake NVML."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pool import Client, errors
from pool.wire.records import Slot
from support.commands import run_command
from support.fake_nvml import CARD, OTHER, THIRD, FakeNvml
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, pid_of
from support.steady_clients import answers, asked_all_the_time

pytestmark = pytest.mark.faults

ROW = np.ones((1,), np.float32)
ONE, TWO = (
    f'[[model]]\nname = "{name}"\npath = "stub:tell?n={n}"\ndevice_memory = "4GiB"\n' for n, name in enumerate("ab", 1)
)
ALONE = ONE + "replicas = 1\n"


@contextlib.contextmanager
def gpus(nvml: FakeNvml, models: str, devices: str = "[0, 1]") -> Iterator[tuple[PoolProcess, Client]]:
    with pool_process(stub_config(devices=devices, models=models), nvml.environ) as pool, pool.client() as client:
        yield pool, client


def slots(client: Client) -> tuple[Slot, ...]:
    return client.status().slots


def lose(nvml: FakeNvml, client: Client, uuid: str = CARD, number: int = 0) -> None:
    nvml.say(uuid, error="GPU is lost", xid=79)
    os.kill(pid_of(slots(client)[number]), signal.SIGKILL)


def settled(client: Client) -> bool:
    return not client.status().rolling_update.left


def test_the_models_of_a_lost_gpu_come_up_on_another_and_go_home_again(nvml: FakeNvml) -> None:
    with gpus(nvml, ONE + TWO) as (pool, client):
        assert [slot.models for slot in slots(client)] == [("a",), ("b",)]
        # The driver's events are told from then on at which the listener has asked, before its first reading.
        eventually(lambda: slots(client)[0].gpus[0].used_bytes is not None)
        with asked_all_the_time(pool, "b"):
            lose(nvml, client)
            waiting = [client.submit("a", ROW, timeout=60.0) for _ in range(20)]
            assert {float(job.result(60)["y"][0]) for job in waiting} == {1.0}
            assert {job.timeline.slot for job in waiting if job.timeline} == {1}
            eventually(lambda: settled(client))
            found = client.status()
            assert found.failover.to_dict() == {
                "away": [{"model": "a", "home": "gpu:0", "device": "gpu:1"}],
                "stays": [],
            }
            assert found.slots[0].state == "FATAL"
            why = r"gpu:0 is gone: GPU is lost \(Xid 79, \d+ s earlier: the GPU has fallen off the bus: .*\)"
            assert re.fullmatch(why, found.slots[0].reason)
            assert found.slots[1].models == ("a", "b")
            said = run_command(pool, "status").stdout
            assert "model a is on gpu:1 while gpu:0 is gone" in said
            assert "when it is back, `pool restart 0` tries slot 0 again" in said
            assert "on gpu:1 while gpu:0 is gone" in run_command(pool, "models").stdout
            # A reload changes nothing of it, and tries nothing again.
            assert client.reload().to_dict() == {"changes": [], "slots": []}
            assert slots(client)[1].models == ("a", "b")
            # While it is still gone.
            former = slots(client)[0].incarnation
            client.restart(0)
            eventually(lambda: slots(client)[0].incarnation > former)
            eventually(lambda: slots(client)[0].state == "FATAL")
            assert answers(client, "a") == 1.0
            with asked_all_the_time(pool, "a"):
                nvml.say(CARD)
                client.restart(0)
                eventually(lambda: slots(client)[0].state == "READY")
                eventually(lambda: slots(client)[1].models == ("b",))
        assert client.status().failover.to_dict() == {"away": [], "stays": []}
        pool.await_log("model a: is on gpu:0 again and leaves gpu:1")
        assert client.run("a", ROW, device="gpu:0", timeout=10)["y"].tolist() == [1.0]


def test_the_only_model_goes_to_a_slot_that_had_none(nvml: FakeNvml) -> None:
    with gpus(nvml, ALONE) as (pool, client):
        assert [slot.state for slot in slots(client)] == ["READY", "STOPPED"]
        with asked_all_the_time(pool, "a"):
            lose(nvml, client)
            eventually(lambda: slots(client)[1].state == "READY")
        # The next one that vanishes takes the last place.
        lose(nvml, client, OTHER, 1)
        assert pool.wait() == 3
        assert "model a cannot move from gpu:1: no other device has room: it needs 4.0 GiB; free: none" in pool.text()


def test_a_failover_goes_on_when_its_host_is_lost_too(nvml: FakeNvml) -> None:
    nvml.say(THIRD)
    with gpus(nvml, ALONE, "[0, 1, 2]") as (pool, client):
        with asked_all_the_time(pool, "a"):
            lose(nvml, client)
            eventually(lambda: slots(client)[1].state == "READY")
            lose(nvml, client, OTHER, 1)
            eventually(lambda: slots(client)[2].state == "READY")
        assert answers(client, "a") == 1.0
        nvml.say(CARD)
        client.restart(0)
        eventually(lambda: slots(client)[2].state == "STOPPED")
        assert client.status().failover.away == ()
        assert answers(client, "a") == 1.0


def test_what_does_not_fit_and_what_is_pinned_is_told_at_once(nvml: FakeNvml) -> None:
    models = ONE.replace("4GiB", "10GiB") + TWO.replace("4GiB", "8GiB") + "devices = [1]\n"
    models += ONE.replace('"a"', '"pinned"') + "devices = [0]\n"
    with gpus(nvml, models) as (pool, client):
        lose(nvml, client)
        eventually(lambda: slots(client)[0].state == "FATAL")
        lines = [
            "model a cannot move from gpu:0: no other device has room: it needs 10.0 GiB; free: gpu:1 7.0 GiB",
            "model pinned cannot move from gpu:0: its `devices` name no other free device",
        ]
        assert client.status().failover.to_dict() == {"away": [], "stays": lines}
        assert all(line in run_command(pool, "status").stdout.replace("\n", " ") for line in lines)
        for model in ("a", "pinned"):  # not at its deadline, which has other words
            with pytest.raises(errors.WorkerLost, match="gpu:0 is gone"):
                client.run(model, ROW, timeout=30)
        assert answers(client, "b") == 2.0
        nvml.say(CARD)
        client.restart(0)
        eventually(lambda: slots(client)[0].state == "READY")
        assert answers(client, "a") == 1.0
        assert client.status().failover.stays == ()


def test_a_model_that_does_not_come_up_elsewhere_harms_nobody_there(nvml: FakeNvml, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "saved_model.pb").write_text("tell?n=1")
    models = ONE.replace("stub:tell?n=1", f"stub:files?{folder}") + TWO
    with gpus(nvml, models) as (pool, client):
        (folder / "saved_model.pb").write_text("cannot-load")
        with asked_all_the_time(pool, "b"):
            lose(nvml, client)
            job = client.submit("a", ROW, timeout=60.0)
            assert isinstance(job.exception(60), errors.WorkerLost)
            eventually(lambda: settled(client))
        assert slots(client)[1].models == ("b",)
        line = "model a cannot move from gpu:0: a worker on gpu:1 could not load it"
        assert client.status().failover.to_dict() == {"away": [], "stays": [line]}
        assert {model.name for model in client.models()} == {"a", "b"}


def test_models_that_are_loaded_meanwhile_find_a_place_too(nvml: FakeNvml) -> None:
    with gpus(nvml, ONE + TWO) as (pool, client):
        lose(nvml, client)
        eventually(lambda: slots(client)[1].models == ("a", "b"))
        for number, name in enumerate(("c", "d", "e"), 3):
            found = run_command(pool, "load", name, f"stub:tell?n={number}")
            assert found.returncode == 0, found.stderr
            assert answers(client, name) == number
        found = run_command(pool, "unload", "a")
        assert found.returncode == 0, found.stderr
        eventually(lambda: "a" not in {model.name for model in client.models()})
        pool.config.write_text(pool.config.read_text() + '[[model]]\nname = "f"\npath = "stub:tell?n=6"\n')
        assert [change.line for change in client.reload().changes] == [
            "[[model]] a: is new",
            "[[model]] f: is new",
        ]
        eventually(lambda: settled(client))
        assert [answers(client, name) for name in "abcdef"] == [1, 2, 3, 4, 5, 6]
        nvml.say(CARD)
        client.restart(0)
        eventually(lambda: client.status().failover.away == () and settled(client), 30)
        assert [answers(client, name) for name in "abcdef"] == [1, 2, 3, 4, 5, 6]

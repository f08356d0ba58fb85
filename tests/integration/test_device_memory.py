"""A GPU slot's next worker, its device, and NVML: stub workers, a fake NVML, and all that is between them."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool import Client
from pool.wire.records import CrashReport, Slot
from support.fake_nvml import CARD, GIB, OTHER, FakeNvml, orphan
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, children, eventually, pid_of

pytestmark = pytest.mark.faults

MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
MODELS = '[[model]]\nname = "faults"\npath = "stub:faults"\ndevices = "all"\n'


@contextlib.contextmanager
def two_gpus(nvml: FakeNvml, health: str = "", rest: str = "") -> Iterator[tuple[PoolProcess, Client]]:
    config = stub_config(devices="[0, 1]", models=MODELS, rest=f"[health]\n{health}\n{rest}")
    with pool_process(config, nvml.environ) as pool, pool.client() as client:
        yield pool, client


def slot(client: Client, number: int = 0) -> Slot:
    return client.status().slots[number]


def is_ready(client: Client, incarnation: int) -> bool:
    found = slot(client)
    return found.state == "READY" and found.incarnation == incarnation


def listens(pool: PoolProcess) -> bool:
    """Whether the pool has a process that listens to the driver."""
    for pid in children(pool.pid):
        with contextlib.suppress(OSError):
            if b"pool.devices.listener" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
    return False


def kill_holding(nvml: FakeNvml, pool: PoolProcess, client: Client) -> int:
    """Kills slot 0's worker, which NVML lists, and whose memory stays. Returns its pid."""
    pid = pid_of(slot(client))
    nvml.say(CARD, used=7 * GIB, processes=[[pid, 6 * GIB]])
    nvml.say(OTHER, processes=[[pid_of(slot(client, 1)), GIB]])
    os.kill(pid, signal.SIGKILL)
    pool.await_log("slot 0 | waiting for gpu:0: 6.0 GiB of the former worker")
    eventually(lambda: "of the former worker" in slot(client).doing)
    return int(pid)


@pytest.mark.promise(4)
def test_the_next_worker_touches_its_device_when_the_memory_is_free_and_not_before(nvml: FakeNvml) -> None:
    with two_gpus(nvml) as (pool, client):
        pid = kill_holding(nvml, pool, client)
        found = slot(client)
        assert (found.state, found.incarnation) == ("LOADING", 2)
        assert found.pid != pid
        assert f"6.0 GiB of the former worker (pid {pid}, which is gone) for" in found.doing
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            # The others go on meanwhile.
            assert client.run("faults", {}, signature="pid", timeout=5)["pid"] == pid_of(slot(client, 1))
            assert slot(client).doing.startswith("waiting for gpu:0: ")
        nvml.say(CARD, used=GIB)
        eventually(lambda: is_ready(client, 2))
        assert pid_of(slot(client)) == found.pid, "it was there all the time"
        pool.await_log(f"slot 0 | waiting for gpu:0: 6.0 GiB of the former worker (pid {pid}, which is gone)")
        pool.await_log("slot 0 | gpu:0 is free after")
        assert "cannot verify that a former worker has freed" not in pool.whole_log()


def test_memory_that_never_goes_is_a_reason_within_the_bound(nvml: FakeNvml) -> None:
    health, rest = 'device_free_timeout = "2s"', "[restart]\nintensity = 2"
    with two_gpus(nvml, health, rest) as (pool, client):
        pid = kill_holding(nvml, pool, client)
        eventually(lambda: slot(client).state == "FATAL")
        why = f"gpu:0 still has 6.0 GiB of the former worker (pid {pid}, which is gone) after 2 s"
        assert slot(client).reason.endswith(f"the last: {why} ([health] device_free_timeout)")
        pool.await_log(f"slot 0 gpu:0 BACKOFF: {why}")
        assert client.run("faults", {}, signature="pid")["pid"] == pid_of(slot(client, 1))
        # Somebody has looked after it.
        nvml.say(CARD)
        client.restart(0)
        eventually(lambda: is_ready(client, 4))


def test_where_no_pid_is_shown_the_bytes_must_come_back(nvml: FakeNvml) -> None:
    """A container: NVML's list has the host's numbers, or nobody's."""
    with two_gpus(nvml) as (_, client):
        nvml.say(CARD, used=7 * GIB, processes=[[1 << 22, 6 * GIB]])
        os.kill(pid_of(slot(client)), signal.SIGKILL)
        text = "waiting for gpu:0: 6.0 GiB more in use than before the former worker came"
        eventually(lambda: slot(client).doing.startswith(text))
        nvml.say(CARD, used=GIB + (100 << 20))
        eventually(lambda: is_ready(client, 2))


def test_a_mig_instance_is_looked_at_too(nvml: FakeNvml) -> None:
    nvml.say(MIG, used=0, no_processes="Insufficient Permissions")
    config = stub_config(devices=f'["{MIG}", 0]', models=MODELS)
    with pool_process(config, nvml.environ) as pool, pool.client() as client:
        nvml.say(MIG, used=4 * GIB, no_processes="Insufficient Permissions")
        os.kill(pid_of(slot(client)), signal.SIGKILL)
        eventually(lambda: slot(client).doing.startswith("waiting for gpu:MIG-c6d4f1ef: 4.0 GiB more in use"))
        nvml.say(MIG, used=0, no_processes="Insufficient Permissions")
        eventually(lambda: is_ready(client, 2))


def test_a_driver_that_hangs_ends_one_worker_within_the_budget(nvml: FakeNvml) -> None:
    """Its beats go on, so what it waits for is shown. It is killed with its stacks, as one that hangs in any phase."""
    with two_gpus(nvml, 'device_free_timeout = "1s"\nimport_timeout = "1h"') as (pool, client):
        nvml.say(CARD, hang_s=600)
        for number in (0, 1):
            os.kill(pid_of(slot(client, number)), signal.SIGKILL)
        eventually(lambda: slot(client, 1).state == "READY" and slot(client, 1).incarnation == 2)
        assert slot(client, 1).state == "READY", "the other GPU's worker is not held up"
        eventually(lambda: slot(client).doing.startswith("waiting for gpu:0 for"))
        hung = pid_of(slot(client))
        pool.await_log("was still waiting for gpu:0 within 3 s ([health] device_free_timeout may be too short)")
        eventually(lambda: not alive(hung))

        def reports() -> list[CrashReport]:
            return [each for each in client.explain(slot=0).crash_reports if each.incarnation == 2]

        eventually(lambda: len(reports()) == 1)  # it is written once the exit was seen
        [report] = reports()
        assert "nvmlDeviceGetHandleByUUID" in str(report), "its stacks say where it hung"
        assert client.run("faults", {}, signature="pid", timeout=5)["pid"] == pid_of(slot(client, 1))
        nvml.say(CARD)
        eventually(lambda: slot(client).state == "READY")


def test_a_driver_that_fails_is_not_waited_for_longer(nvml: FakeNvml) -> None:
    with two_gpus(nvml, 'device_free_timeout = "3s"') as (pool, client):
        nvml.say(CARD, error="Unknown Error")
        os.kill(pid_of(slot(client)), signal.SIGKILL)
        eventually(lambda: is_ready(client, 2))
        pool.await_log("cannot verify that a former worker has freed gpu:0: Unknown Error within 3 s")


def test_the_process_that_listens_may_die_at_any_time_and_nvml_may_end_a_worker(nvml: FakeNvml) -> None:
    with two_gpus(nvml, 'device_free_timeout = "10s"') as (pool, client):
        eventually(lambda: listens(pool))
        for pid in set(children(pool.pid)) - {pid_of(slot(client, number)) for number in (0, 1)}:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: listens(pool))
        nvml.say(CARD, exit=9)
        os.kill(pid_of(slot(client)), signal.SIGKILL)
        pool.await_log("slot 0 gpu:0 BACKOFF")
        assert client.run("faults", {}, signature="pid")
        nvml.say(CARD)
        eventually(lambda: slot(client).state == "READY")


@pytest.mark.parametrize("hangs", [False, True])
def test_what_asks_nvml_goes_with_a_killed_pool(nvml: FakeNvml, hangs: bool) -> None:
    with two_gpus(nvml) as (pool, _):
        eventually(lambda: listens(pool))
        if hangs:
            nvml.say(CARD, hang_s=600)
            eventually(nvml.hangs)
        left = children(pool.pid)
        pool.running.kill()
        pool.running.wait(10)
        eventually(lambda: not any(alive(pid) for pid in left), 5.0)


@pytest.mark.parametrize("hangs", [False, True])
def test_a_pool_that_waits_for_a_device_stops_at_once(nvml: FakeNvml, hangs: bool) -> None:
    """Who waited for the device would do so for an hour."""
    with two_gpus(nvml, 'device_free_timeout = "1h"') as (pool, client):
        kill_holding(nvml, pool, client)
        if hangs:
            nvml.say(CARD, hang_s=3600)
            eventually(nvml.hangs)
        assert pool.stop() == 0
        assert children(pool.pid) == []


def test_a_slot_that_waits_can_be_restarted(nvml: FakeNvml) -> None:
    with two_gpus(nvml) as (pool, client):
        pid = kill_holding(nvml, pool, client)
        client.restart(0)
        eventually(lambda: slot(client).incarnation == 3)
        eventually(lambda: f"(pid {pid}, which is gone)" in slot(client).doing)
        nvml.say(CARD)
        eventually(lambda: is_ready(client, 3))


def test_without_patience_nvml_is_not_asked(nvml: FakeNvml) -> None:
    with two_gpus(nvml, 'device_free_timeout = "off"') as (pool, client):
        assert not listens(pool)
        nvml.say(CARD, used=7 * GIB, processes=[[pid_of(slot(client)), 6 * GIB]])
        os.kill(pid_of(slot(client)), signal.SIGKILL)
        eventually(lambda: is_ready(client, 2))
        assert not listens(pool)


def test_an_orphan_of_a_former_pool_is_waited_for_and_a_stranger_is_not(nvml: FakeNvml) -> None:
    with orphan() as pid:
        nvml.say(CARD, used=9 * GIB, processes=[[pid, 5 * GIB]])
        nvml.say(OTHER, used=9 * GIB, processes=[[os.getpid(), 8 * GIB]])
        pool = PoolProcess(stub_config(devices="[0, 1]", models=MODELS), nvml.environ).start()
        try:
            pool.await_log(f"slot 0 | waiting for gpu:0: 5.0 GiB of a former pool's worker (pid {pid}, state S)")
            pool.await_log("slot 1 gpu:1 READY")
            assert "slot 0 gpu:0 READY" not in pool.text()
            nvml.say(CARD)
            pool.await_ready()
            assert pool.stop() == 0
        finally:
            pool.kill()
    assert not alive(pid)


def test_a_standby_asks_once_it_takes_the_seat_and_waits_as_any_other(nvml: FakeNvml) -> None:
    config = stub_config("standby = true", "[0]", MODELS)
    with pool_process(config, nvml.environ) as pool, pool.client() as client:

        def stands_by() -> int:
            standby = slot(client).standby
            return pid_of(standby) if standby is not None and standby.state == "READY" else 0

        eventually(lambda: stands_by() > 0)
        # One that comes while every call into the driver hangs: it imports what runs its models, and asks nobody.
        nvml.say(CARD, hang_s=600)
        first = stands_by()
        os.kill(first, signal.SIGKILL)
        eventually(lambda: stands_by() not in (0, first))
        standby, pid = stands_by(), pid_of(slot(client))
        assert slot(client).state == "READY"
        nvml.say(CARD, used=7 * GIB, processes=[[pid, 6 * GIB]])
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: f"waiting for gpu:0: 6.0 GiB of the former worker (pid {pid}, " in slot(client).doing)
        assert (pid_of(slot(client)), slot(client).state) == (standby, "LOADING")
        nvml.say(CARD)
        eventually(lambda: slot(client).state == "READY")
        assert pid_of(slot(client)) == standby


def test_of_two_slots_on_a_card_one_waits_for_its_own_though_the_other_grows(nvml: FakeNvml) -> None:
    """No pid is shown. Each has taken 6 GiB of the card; what one of them gave back, the other takes in part."""
    models = '[[model]]\nname = "told"\npath = "stub:tell?n=7&load_ms=3000"\ndevices = "all"\n'
    pool = PoolProcess(stub_config("workers_per_device = 2", "[0]", models), nvml.environ).start()
    try:
        with pool.client() as client:
            eventually(lambda: all(slot(client, number).doing.startswith("loading") for number in (0, 1)))
            nvml.say(CARD, used=13 * GIB)
            pool.await_ready()
            neighbour = pid_of(slot(client, 1))
            os.kill(pid_of(slot(client)), signal.SIGKILL)
            text = "waiting for gpu:0: 12.0 GiB more in use than before the former worker came"
            eventually(lambda: slot(client).doing.startswith(text))
            nvml.say(CARD, used=9 * GIB)
            eventually(lambda: slot(client).doing.startswith("waiting for gpu:0: 8.0 GiB more"))
            eventually(lambda: is_ready(client, 2))
            assert (pid_of(slot(client, 1)), slot(client, 1).incarnation) == (neighbour, 1)
        assert pool.stop() == 0
    finally:
        pool.kill()


@pytest.mark.parametrize(("held", "free"), [(6, True), (14, False)])
def test_a_replacement_comes_beside_the_worker_only_where_the_card_has_room(
    nvml: FakeNvml, held: int, free: bool
) -> None:
    """The card has 16 GiB."""
    with two_gpus(nvml) as (pool, client):
        former = pid_of(slot(client))
        nvml.say(CARD, used=held * GIB, processes=[[former, held * GIB]])
        assert client.restart(0) == 2
        if free:
            pool.await_log(
                "slot 0 | getting ready beside the slot's worker: gpu:0 has 10.0 GiB free, and its worker holds 6.0"
            )
        else:
            why = "gpu:0 has 2.0 GiB free, and its worker holds 14.0 GiB"
            pool.await_log(f"restart requested; without a replacement: {why}")
            nvml.say(CARD)
        eventually(lambda: is_ready(client, 2 if free else 3))
        eventually(lambda: not alive(former))


def test_what_a_model_takes_is_learned_and_planned_with(nvml: FakeNvml) -> None:
    """Two models that nobody said the size of; the second start knows that they do not fit on one GPU."""
    models = '[[model]]\nname = "a"\npath = "stub:echo"\ndevices = [0]\n'
    models += '[[model]]\nname = "b"\npath = "stub:counter"\ndevices = [1]\n'
    for card in (CARD, OTHER):
        nvml.say(card, each_worker=9 * GIB)
    pool = PoolProcess(stub_config(devices="[0, 1]", models=models), nvml.environ)
    try:
        pool.start().await_ready()
        pool.await_log("slot 0: a takes 9216 MiB of gpu:0; the next start plans with this size")
        pool.await_log("slot 1: b takes 9216 MiB of gpu:1; the next start plans with this size")
        assert pool.stop() == 0
        pool.config.write_text(pool.config.read_text().replace("devices = [0]\n", "devices = [1]\n"))
        pool.start()
        assert pool.wait() == 2
        table = [line.split() for line in pool.text().splitlines()]
        assert ["b", "9.0", "GiB", "a", "former", "run", "does", "not", "fit", "on", "gpu:1"] in table
    finally:
        pool.kill()


def test_a_gpu_that_vanishes_ends_its_slot_alone(nvml: FakeNvml) -> None:
    models = MODELS + '[[model]]\nname = "a"\npath = "stub:echo"\ndevice_memory = "10GiB"\n'
    models += '[[model]]\nname = "b"\npath = "stub:echo"\ndevice_memory = "4GiB"\n'
    config = stub_config(devices="[0, 1]", models=models)
    with pool_process(config, nvml.environ) as pool, pool.client() as client:
        nvml.say(CARD, error="GPU is lost")
        os.kill(pid_of(slot(client)), signal.SIGKILL)
        eventually(lambda: slot(client).doing.startswith("waiting for gpu:0, which is gone: GPU is lost"))
        eventually(lambda: slot(client).state == "FATAL")
        assert slot(client).reason == "gpu:0 is gone: GPU is lost"
        pool.await_log("model faults cannot move from gpu:0: all other devices already have it")
        assert client.run("faults", {}, signature="pid", timeout=5)["pid"] == pid_of(slot(client, 1))
        # It is back after a reset.
        nvml.say(CARD)
        client.restart(0)
        eventually(lambda: slot(client).state == "READY")


def test_what_the_driver_says_of_an_error_is_in_the_log(nvml: FakeNvml) -> None:
    with two_gpus(nvml) as (pool, client):
        # Events are told from then on at which the listener has asked for them, before it reads the GPU the first time.
        eventually(lambda: slot(client).gpus[0].used_bytes is not None)
        nvml.say(CARD, xid=31)
        os.kill(pid_of(slot(client)), signal.SIGKILL)
        pool.await_log("slot 0: the driver says of its GPU: Xid 31, ")
        eventually(lambda: is_ready(client, 2))
        assert pool.whole_log().count("Xid 31") == 1

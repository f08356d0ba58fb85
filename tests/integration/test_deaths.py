"""Workers that die, and what the caller sees of it."""

import os
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from pool import Client, errors
from support.commands import run_command
from support.fake_nvml import FakeNvml
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, eventually, pid_of
from support.steady_clients import answers, asked_all_the_time


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_the_caller_sees_only_the_result(client: Client, marker: str, number: int) -> None:
    result = client.run("faults", {"signal": int(number), "marker": marker}, signature="kill_once")
    assert result["pid"] > 0


@pytest.mark.promise(2)
def test_a_worker_killed_from_outside_is_replaced_and_its_jobs_run_elsewhere() -> None:
    with pool_process(stub_config()) as pool, pool.client() as client:
        futures = [client.submit("faults", 1.0, signature="sleep") for _ in range(4)]
        eventually(lambda: all(slot.busy_lanes == 2 for slot in client.status().slots))
        victim = pid_of(client.status().slots[0])
        os.kill(victim, signal.SIGKILL)
        pids = [int(future.result(20)["pid"]) for future in futures]
        assert victim not in pids
        eventually(lambda: client.status().slots[0].state == "READY")
        slot = client.status().slots[0]
        assert slot.incarnation == 2
        assert slot.pid != victim
        pool.await_log("slot 0 cpu:0 BACKOFF: SIGKILL")


@pytest.mark.promise(2)
def test_past_max_attempts_the_caller_gets_the_story(client: Client) -> None:
    with pytest.raises(errors.Quarantined) as caught:
        client.run("faults", int(signal.SIGKILL), signature="kill")
    text = str(caught.value)
    assert "2 of 2 attempts ended with their worker, the last with this job alone in it" in text
    assert text.count("leased to slot") == 2
    assert text.count("died: SIGKILL") == 2
    assert not caught.value.retryable


def test_an_exit_is_a_death_too(client: Client) -> None:
    with pytest.raises(errors.Quarantined, match="died: exit status 3"):
        client.run("faults", 3, signature="exit")


@pytest.mark.promise(2)
def test_a_stateful_job_is_never_run_twice(client: Client, marker: str) -> None:
    assert client.run("counter", 5, signature="add")["total"] == 5
    with pytest.raises(errors.WorkerLost, match="keeps state") as caught:
        client.run("counter", {"signal": int(signal.SIGKILL), "marker": marker}, signature="kill_once")
    assert not caught.value.retryable
    assert Path(marker).exists()


def test_a_neighbour_of_a_killer_is_not_harmed(client: Client, marker: str) -> None:
    sleepers = [client.submit("faults", 0.5, signature="sleep") for _ in range(3)]
    killer = client.submit("faults", {"signal": int(signal.SIGKILL), "marker": marker}, signature="kill_once")
    assert killer.result(20)
    assert all(sleeper.result(20) for sleeper in sleepers)


@pytest.mark.promise(1)
def test_a_hung_batch_is_ended_and_the_slot_comes_back() -> None:
    config = stub_config(rest='[health]\nhung_after = "700ms"\n[queue]\nmax_attempts = 1', devices='["cpu"]')
    with pool_process(config) as pool, pool.client() as client:
        with pytest.raises(errors.Quarantined, match="hung_after"):
            client.run("faults", 3600.0, signature="sleep")
        assert client.run("echo", 1.0, timeout=30)["x"] == 1.0
        assert pool.running.poll() is None


@pytest.mark.faults
def test_an_idle_worker_that_is_stopped_is_found_and_replaced() -> None:
    config = stub_config(rest='[health]\nheartbeat = "200ms"\nsilent_after = "1s"')
    with pool_process(config) as pool, pool.client() as client:
        stopped = pid_of(client.status().slots[1])
        os.kill(stopped, signal.SIGSTOP)
        pool.await_log("was idle and gave no sign of life")
        eventually(lambda: not alive(stopped))
        eventually(lambda: [slot.state for slot in client.status().slots] == ["READY", "READY"])
        assert [slot.incarnation for slot in client.status().slots] == [1, 2]
        assert client.run("echo", 1.0, timeout=30)["x"] == 1.0


@pytest.mark.faults
def test_a_pool_that_was_stopped_itself_takes_no_worker_for_silent() -> None:
    config = stub_config(rest='[health]\nheartbeat = "200ms"\nsilent_after = "1s"')
    with pool_process(config) as pool, pool.client() as client:
        os.kill(pool.pid, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(pool.pid, signal.SIGCONT)
        time.sleep(2.5)  # two looks
        assert [slot.incarnation for slot in client.status().slots] == [1, 1]


def test_a_worker_that_dies_again_and_again_is_given_up() -> None:
    config = stub_config(
        devices='["cpu"]', rest='[restart]\nintensity = 2\nperiod = "60s"', models=_model("stub:load-exit")
    )
    pool = PoolProcess(config).start()
    try:
        assert pool.wait() == 3
        text = pool.text()
        assert text.count("STARTING") == 3
        assert "FATAL: 3 deaths within 60 s" in text
        assert "the stub was told to die while it loads" in text
        assert text.strip().splitlines()[-1].startswith("pool: no slot is left that could serve")
        pool.assert_clean([])
    finally:
        pool.kill()


def test_a_model_that_cannot_load_is_fatal_at_once_and_says_why() -> None:
    pool = PoolProcess(stub_config(models=_model("stub:cannot-load"))).start()
    try:
        assert pool.wait() == 3
        text = pool.text()
        assert text.count("STARTING") == 2, "one try a slot"
        assert "MODEL_CANNOT_LOAD" in text
        assert "model broken: stub:cannot-load: the stub backend has no model 'cannot-load' to load" in text
    finally:
        pool.kill()


def test_a_load_that_hangs_is_bounded() -> None:
    config = stub_config(
        devices='["cpu"]',
        rest='[health]\nload_timeout = "300ms"\n[restart]\nintensity = 0',
        models=_model("stub:load-hang"),
    )
    pool = PoolProcess(config).start()
    try:
        assert pool.wait() == 3
        assert "still loading broken within 0.3 s ([health] load_timeout may be too short)" in pool.text()
    finally:
        pool.kill()


def test_a_model_that_cannot_load_leaves_a_slot_without_another_fatal_and_the_others_serve(nvml: FakeNvml) -> None:
    models = _model("stub:echo", "good", "[0]") + _model("stub:cannot-load", "broken", "[1]")
    config = stub_config(devices="[0, 1]", models=models)
    with pool_process(config, nvml.environ) as pool, pool.client() as client:
        assert "ready: 1 of 2 slots serve" in pool.text()
        assert client.run("good", 1.0)["x"] == 1.0
        slot = client.status().slots[1]
        assert (slot.state, slot.models, "MODEL_CANNOT_LOAD" in slot.reason) == ("FATAL", (), True)
        with pytest.raises(errors.ModelNotFound, match="model 'broken' could not be loaded, so it is not served: "):
            client.run("broken", 1.0)
        told = run_command(pool, "restart", "1").stderr
        assert told == "pool: no model is placed in slot 1; `pool reload` tries again what could not be loaded there\n"


def test_a_pool_that_is_to_serve_all_of_its_models_ends_without_one() -> None:
    models = _model("stub:echo", "good") + _model("stub:cannot-load")
    pool = PoolProcess(stub_config('ready = "strict"', models=models)).start()
    try:
        assert pool.wait() == 3
        last = pool.text().strip().splitlines()[-1]
        assert last.startswith("pool: exit status 74 MODEL_CANNOT_LOAD: model broken: stub:cannot-load: ")
        assert last.endswith('([pool] ready = "strict")')
        pool.assert_clean([])
    finally:
        pool.kill()


def test_of_many_models_the_good_ones_are_served_and_a_mended_one_comes_with_a_reload(tmp_path: Path) -> None:
    """In one slot, whose workers learn one after the other what they have to leave out."""
    bad = {3, 11, 17}
    for number in range(20):
        (tmp_path / f"m{number}").mkdir()
        text = {11: "cannot-load", 17: "load-exit", 3: "cannot-load"}.get(number, f"tell?n={number}")
        (tmp_path / f"m{number}" / "saved_model.pb").write_text(text)
    models = "".join(_model(f"stub:files?{tmp_path}/m{number}", f"m{number}") for number in range(20))
    with pool_process(stub_config(devices='["cpu"]', models=models)) as pool, pool.client() as client:
        assert {each.model for each in client.status().unloadable} == {f"m{number}" for number in bad}
        assert client.status().slots[0].incarnation == 1 + 2 + 3, "who only crashes is tried three times"
        why = {each.model: each.why for each in client.status().unloadable}["m17"]
        assert why == "exit status 9, 3 times in a row while it was loaded"
        for number in set(range(20)) - bad:
            assert answers(client, f"m{number}") == number
        with asked_all_the_time(pool, "m1"):
            (tmp_path / "m3" / "saved_model.pb").write_text("tell?n=33")
            found = run_command(pool, "reload", "--wait")
            assert found.returncode == 0, found
            assert [line.split(" could ")[0] for line in found.stderr.splitlines()] == ["model m11", "model m17"]
            assert answers(client, "m3") == 33.0
            assert run_command(pool, "restart", "0").returncode == 0
        assert {each.model for each in client.status().unloadable} == {"m11", "m17"}
        incarnation = client.status().slots[0].incarnation
        assert run_command(pool, "reload", "--wait").returncode == 0
        assert client.status().slots[0].incarnation == incarnation, "nothing has changed"
        os.kill(pid_of(client.status().slots[0]), signal.SIGKILL)
        eventually(lambda: client.status().slots[0].incarnation > incarnation)
        assert answers(client, "m3") == 33.0


def test_a_client_that_repeats_a_poisonous_job_does_not_end_the_pool() -> None:
    config = stub_config(rest='[restart]\nintensity = 2\nbackoff_max = "100ms"')
    with pool_process(config) as pool, pool.client() as client:
        for _ in range(8):
            with pytest.raises(errors.Quarantined):
                client.run("faults", int(signal.SIGKILL), signature="kill")
        assert client.run("echo", 1.0)["x"] == 1.0
        assert "FATAL" not in pool.whole_log()


def test_large_jobs_survive_a_death() -> None:
    with pool_process(stub_config()) as pool, pool.client() as client:
        big = np.random.default_rng(0).random((512, 1024)).astype(np.float32)
        futures = [client.submit("echo", big + number) for number in range(20)]
        os.kill(pid_of(client.status().slots[1]), signal.SIGKILL)
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(30)["x"], big + number)


def _model(path: str, name: str = "broken", devices: str = '"all"') -> str:
    return f'[[model]]\nname = "{name}"\npath = "{path}"\ndevices = {devices}\n'


def test_the_package_under_test_is_the_installed_one() -> None:
    assert sys.prefix != sys.base_prefix, "run the tests from a virtual environment with the package installed"


# Its memory is given back after its sockets are closed and before its exit can be seen, as that of a GPU is.
HEAVY = """
import os, sys
if "workers" in sys.orig_argv:
    fd = os.memfd_create("heavy")
    for _ in range(128):
        os.write(fd, bytes(1 << 20))
"""


@pytest.mark.faults
def test_a_kill_from_outside_under_load_is_told_as_that_every_time(tmp_path: Path) -> None:
    """It may be for want of memory, which nobody would look for in a worker that the pool says it has killed."""
    (tmp_path / "sitecustomize.py").write_text(HEAVY)
    model = '[[model]]\nname = "m"\npath = "stub:tell?n=1"\ndevices = "all"\n'
    rest = '[restart]\nintensity = 1000\nbackoff_max = "100ms"\n[queue]\nmax_attempts = 100'
    config = stub_config(models=model, rest=rest)
    with pool_process(config, {"PYTHONPATH": str(tmp_path)}) as pool, pool.client() as client:
        with asked_all_the_time(pool):
            for kill in range(20):
                eventually(lambda: all(slot.state == "READY" for slot in client.status().slots))
                os.kill(pid_of(client.status().slots[kill % 2]), signal.SIGKILL)
                eventually(lambda: pool.text().count(" BACKOFF: ") > kill)  # noqa: B023  # it is done in this round
        reasons = re.findall(r" BACKOFF: ([^;\n]*)", pool.text())
        assert Counter(reasons) == {"SIGKILL (out of memory?)": 20}
        deaths = client.explain().deaths
        assert Counter((death.exit, death.killed_for) for death in deaths) == {(reasons[0], None): 20}

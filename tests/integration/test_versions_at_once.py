"""Versions of a model that are served at once: a job is answered by the one that it names, whatever comes and goes."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pool import AsyncClient, Client, errors
from pool.client.futures import JobFuture
from support.commands import run_command
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, pid_of
from support.run_ledger import Ledger
from support.steady_clients import answers, asked_all_the_time, put

pytestmark = pytest.mark.replacement

ROW = np.ones((1,), np.float32)


TWO = '["cpu", "cpu"]'


def config(folder: Path, versions: str = '"all"', labels: str = "{}", devices: str = '["cpu"]') -> str:
    model = f'[[model]]\nname = "m"\npath = "stub:files?{folder / "m"}"\ndevices = "all"\n'
    return stub_config('watch = "50ms"', devices, models=f"{model}versions = {versions}\nlabels = {labels}\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 3):
        put(tmp_path / "m", number)
    return tmp_path


def reload(pool: PoolProcess, text: str) -> "list[str]":
    """With the same endpoint; the lines that it prints."""
    pool.config.write_text(text.replace("@endpoint@", pool.endpoint))
    found = run_command(pool, "reload", "--wait")
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


def named(client: Client) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Of each version its labels, and whether it is what jobs get that name none."""
    return {each.name: (each.labels, each.default) for each in client.models()}


def are_with_the_pool(jobs: Sequence[JobFuture], client: Client, name: str) -> bool:
    """None of them is still on its way. The client is asked first: an answer that comes meanwhile makes it no."""
    left = sum(not job.done() for job in jobs)
    return bool(left == next(each for each in client.models() if each.name == name).scheduling.unanswered_jobs)


def test_jobs_reach_the_version_that_they_name(folder: Path) -> None:
    async def asked(endpoint: str) -> list[float]:
        async with AsyncClient(endpoint) as client:
            return [float((await client.submit("m", ROW, version=version))["y"][0]) for version in ("stable", 3)]

    with (
        pool_process(config(folder, labels="{ stable = 1, canary = 3 }", devices=TWO)) as pool,
        pool.client() as client,
    ):
        wanted = {None: 3.0, 1: 1.0, 3: 3.0, "stable": 1.0, "canary": 3.0}
        for _ in range(20):
            jobs = {version: client.submit("m", ROW, version=version) for version in wanted}
            assert {version: float(job.result(20)["y"][0]) for version, job in jobs.items()} == wanted
        many = client.submit_many("m", [ROW] * 50, version="stable")
        assert {float(job.result(20)["y"][0]) for job in many} == {1.0}
        assert {float(each["y"][0]) for each in client.map("m", [ROW] * 20, version=1)} == {1.0}
        assert {float(each["y"][0]) for each in client.broadcast("m", ROW, version="stable").values()} == {1.0}
        assert set(client.broadcast("m", ROW)) == {0, 1}
        assert named(client) == {"m@1": (("stable",), False), "m@3": (("canary",), True)}
        for unserved, text in [
            (2, "model 'm': version 2 is not served; served: stable = 1, canary = 3"),
            ("old", "model 'm': no version has the label 'old'; served: stable = 1, canary = 3"),
        ]:
            with pytest.raises(errors.ModelNotFound, match=text):
                answers(client, version=unserved)
        with pytest.raises(errors.ModelNotFound, match=r"no model 'n'; there are: m$"):
            answers(client, "n")
        assert asyncio.run(asked(pool.endpoint)) == [1.0, 3.0]
        said = run_command(pool, "submit", "m", "--input", "x=[1.0]", "--version", "stable", "--json")
        assert json.loads(said.stdout)["outputs"]["y"]["values"] == [1.0], said.stderr
        assert "m@1 (stable)" in run_command(pool, "status").stdout
        assert "m@3  slots 0, 1  canary  without `version`" in run_command(pool, "models").stdout
        assert client.status().slots[0].versions == {"m@1": 1, "m@3": 3}


def test_a_new_version_is_served_beside_the_others_and_becomes_the_default_when_it_is_ready(folder: Path) -> None:
    with pool_process(config(folder, devices=TWO)) as pool, pool.client() as client:
        with asked_all_the_time(pool) as found, asked_all_the_time(pool, "m@1") as first:
            put(folder / "m", 4, "tell?n=4&load_ms=300")
            pool.await_log("model m: versions 1, 3, 4 are served")
            before = found[4.0]
            eventually(lambda: found[4.0] > before + 20)
            assert set(found) == {3.0, 4.0}
            assert set(first) == {1.0}
        assert [answers(client, version=version) for version in (1, 3, 4)] == [1.0, 3.0, 4.0]


def test_a_version_whose_folder_goes_is_unloaded_after_its_jobs(folder: Path) -> None:
    put(folder / "m", 2, "tell?n=2&run_ms=300")
    with pool_process(config(folder)) as pool, pool.client() as client:
        with asked_all_the_time(pool):
            jobs = [client.submit("m", ROW, signature=None, version=2, timeout=30.0) for _ in range(40)]
            # A job that comes when the folder is gone is refused.
            eventually(lambda: are_with_the_pool(jobs, client, "m@2"))
            shutil.rmtree(folder / "m" / "2")
            assert {float(job.result(30)["y"][0]) for job in jobs} == {2.0}
            eventually(lambda: set(named(client)) == {"m@1", "m@3"}, 40.0)
        with pytest.raises(errors.ModelNotFound, match="version 2 is not served; served: 1, 3"):
            answers(client, version=2)
        with asked_all_the_time(pool, "m@1"):
            shutil.rmtree(folder / "m" / "3")
            eventually(lambda: named(client) == {"m@1": ((), True)}, 40.0)
        assert answers(client) == 1.0


def test_a_version_goes_with_the_last_of_its_jobs(folder: Path) -> None:
    """Not when `drain_timeout` is over, nor when the loop comes round for something else."""
    ledger = Ledger(folder)
    put(folder / "m", 2, f"counter?{ledger.path}")
    model = f'[[model]]\nname = "m"\npath = "stub:files?{folder / "m"}"\ndevices = "all"\nversions = "all"\n'
    text = stub_config('watch = "50ms"\ndrain_timeout = "100s"', '["cpu"]', models=model)
    with pool_process(text) as pool, pool.client() as client:
        workers = pool.workers()
        job = client.submit("m", {"n": [-1]}, signature="gated", version=2, timeout=60.0)
        eventually(lambda: client.status().slots[0].doing.startswith("running"))
        shutil.rmtree(folder / "m" / "2")
        eventually(lambda: client.status().rolling_update.left == (0,))
        assert not job.done()
        assert pool.workers() == workers, "it is waited for"
        ledger.open_gate()
        assert job.result(30)
        eventually(lambda: pool.workers() != workers, 5.0)


def test_a_broken_version_harms_no_other_and_is_tried_once(folder: Path) -> None:
    with pool_process(config(folder, devices=TWO)) as pool, pool.client() as client:
        with asked_all_the_time(pool) as found:
            put(folder / "m", 5, "cannot-load")
            pool.await_log("model m: version 5 failed to load; it is tried again when its files change")
            eventually(lambda: not client.status().rolling_update.left, 40.0)
            before = found[3.0]
            eventually(lambda: found[3.0] > before + 100)
            put(folder / "m", 4)
            pool.await_log("model m: versions 1, 3, 4 are served")
            eventually(lambda: found[4.0] > 0)
        assert set(found) == {3.0, 4.0}
        assert client.status().versions.broken == (f"stub:files?{folder}/m/5",)
        assert pool.text().count("version 5 failed to load") == 1
        assert [answers(client, version=version) for version in (1, 3, 4)] == [1.0, 3.0, 4.0]
        (folder / "m" / "5" / "saved_model.pb").write_text("tell?n=5")
        pool.await_log("model m: versions 1, 3, 4, 5 are served")
        assert answers(client) == 5.0


def test_a_label_moves_at_once_and_no_worker_is_replaced(folder: Path) -> None:
    with pool_process(config(folder, "[1, 3]", "{ stable = 1 }")) as pool, pool.client() as client:
        workers = pool.workers()
        with asked_all_the_time(pool):
            assert answers(client, version="stable") == 1.0
            said = reload(pool, config(folder, "[1, 3]", "{ stable = 3, old = 1 }"))
            assert said == ['[[model]] m labels: {"stable": 1} → {"stable": 3, "old": 1}']
            assert (answers(client, version="stable"), answers(client, version="old")) == (3.0, 1.0)
        assert pool.workers() == workers
        refused = config(folder, "[1, 3]", "{ stable = 2 }")
        pool.config.write_text(refused.replace("@endpoint@", pool.endpoint))
        found = run_command(pool, "reload")
        assert found.returncode == 2
        assert "model m: labels: stable = 2, which is not served; served: 1, 3" in found.stderr
        assert answers(client, version="stable") == 3.0


def test_other_versions_by_a_reload_cost_no_job_though_none_stays(folder: Path) -> None:
    put(folder / "m", 4)
    with pool_process(config(folder, "[1]", "{ stable = 1 }")) as pool, pool.client() as client:
        with asked_all_the_time(pool) as found:
            said = reload(pool, config(folder, "[3, 4]", "{ stable = 3 }"))
            assert said[:2] == [
                "[[model]] m versions: [1] → [3, 4]",
                '[[model]] m labels: {"stable": 1} → {"stable": 3}',
            ]
            assert said[2:5] == ["[[model]] m@3: is new", "[[model]] m@4: is new", "[[model]] m@1: is gone"]
            before = found[4.0]
            eventually(lambda: found[4.0] > before + 20)
            assert set(found) == {1.0, 4.0}
        assert answers(client, version="stable") == 3.0
        with pytest.raises(errors.ModelNotFound, match="version 1 is not served; served: stable = 3, 4"):
            answers(client, version=1)


def test_from_the_newest_to_several_and_back(folder: Path) -> None:
    with pool_process(config(folder, '"newest"')) as pool, pool.client() as client:
        with asked_all_the_time(pool) as found:
            reload(pool, config(folder, "[1, 3]"))
            assert answers(client, version=1) == 1.0
            assert set(named(client)) == {"m@1", "m@3"}
            reload(pool, config(folder, '"newest"'))
            assert set(named(client)) == {"m"}
            assert set(found) == {3.0}
            put(folder / "m", 4)
            eventually(lambda: found[4.0] > 20 and not client.status().rolling_update.left, 40.0)
        with pytest.raises(errors.ModelNotFound, match="version 1 is not served; served: 4"):
            answers(client, version=1)


def test_versions_that_do_not_come_up_by_a_reload_leave_what_was_served(folder: Path) -> None:
    put(folder / "m", 5, "cannot-load")
    text = config(folder, "[3, 5]", "{ stable = 5 }")
    with (
        pool_process(config(folder, "[1]", "{ stable = 1 }")) as pool,
        pool.client() as client,
        asked_all_the_time(pool) as found,
    ):
        pool.config.write_text(text.replace("@endpoint@", pool.endpoint))
        said = run_command(pool, "reload", "--wait")
        assert said.returncode == 1
        assert "did not start with" in said.stderr
        assert answers(client, version="stable") == 1.0
        assert set(found) == {1.0}
        (folder / "m" / "5" / "saved_model.pb").write_text("tell?n=5")
        reload(pool, text)
        assert answers(client, version="stable") == 5.0


def test_the_last_versions_are_served_on_from_memory_and_a_death_loses_none(folder: Path) -> None:
    with pool_process(config(folder)) as pool, pool.client() as client, asked_all_the_time(pool):
        os.kill(pid_of(client.status().slots[0]), signal.SIGKILL)
        eventually(lambda: all(slot.state == "READY" for slot in client.status().slots), 40.0)
        assert [answers(client, version=version) for version in (1, 3)] == [1.0, 3.0]
        shutil.move(folder / "m", folder / "away")
        pool.await_log("cannot be read: No such file or directory; the loaded versions still serve")
        assert [answers(client, version=version) for version in (1, 3)] == [1.0, 3.0]


@pytest.mark.parametrize("devices", ['["cpu"]', TWO])
def test_versions_that_cannot_be_loaded_at_the_start_are_left_out_and_the_others_served(
    folder: Path, devices: str
) -> None:
    for number in (5, 6):
        put(folder / "m", number, "cannot-load")
    put(folder / "n", 1)
    for number in (2, 3):
        put(folder / "n", number, "cannot-load")
    newest = f'[[model]]\nname = "n"\npath = "stub:files?{folder / "n"}"\ndevices = "all"\n'
    with pool_process(config(folder, labels="{ stable = 1, canary = 5 }", devices=devices) + newest) as pool:
        with pool.client() as client:
            assert answers(client) == 3.0
            assert (answers(client, version="stable"), answers(client, "n")) == (1.0, 1.0)
            with pytest.raises(errors.ModelNotFound, match="no version has the label 'canary'; served: stable = 1, 3"):
                answers(client, version="canary")
            eventually(lambda: all(slot.state == "READY" for slot in client.status().slots), 40.0)
        pool.await_log("model m: version 6 failed to load; it is tried again when its files change")
        pool.await_log("not served, because a worker could not load it: m@6")
        pool.await_log("the former version or settings are served, because a worker could not load it: n")


def test_a_model_whose_every_version_cannot_be_loaded_ends_the_pool_as_before(folder: Path) -> None:
    for number in (1, 3):
        (folder / "m" / str(number) / "saved_model.pb").write_text("cannot-load")
    pool = PoolProcess(config(folder)).start()
    try:
        assert pool.wait(40.0) == 3
        assert "MODEL_CANNOT_LOAD" in pool.text()
    finally:
        pool.kill()

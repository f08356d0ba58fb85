"""New versions of a model reach a running pool by a folder with a number, and no job is lost on the way."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from integration.load_gate import LoadGate
from pool import Client, errors
from support.commands import run_command
from support.pool_process import pool_process, stub_config
from support.processes import eventually, pid_of
from support.steady_clients import answers, asked_all_the_time, put

pytestmark = pytest.mark.replacement


def config(folder: Path, *names: str, watch: str = "50ms", extra: str = "", keys: str = "") -> str:
    """`keys`: further ones of each model."""
    models = "".join(
        f'[[model]]\nname = "{name}"\npath = "stub:files?{folder / name}"\ndevices = "all"\n{keys}' for name in names
    )
    return stub_config(f'watch = "{watch}"\n{extra}', models=models)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path / "m", 1)
    return tmp_path


@pytest.fixture
def gate(tmp_path: Path) -> LoadGate:
    return LoadGate(tmp_path)


def served(client: Client, model: str = "m") -> list[int]:
    """By the slots that hold it and are READY."""
    slots = [slot for slot in client.status().slots if model in slot.models and slot.state == "READY"]
    return [slot.versions[model] for slot in slots]


def rolled(client: Client, *versions: int, model: str = "m") -> None:
    eventually(lambda: served(client, model) == list(versions) and not client.status().rolling_update.left, 40.0)


def test_a_new_version_is_served_by_every_slot_and_no_job_fails(folder: Path) -> None:
    with pool_process(config(folder, "m")) as pool, pool.client() as client:
        assert served(client) == [1, 1]
        (model,) = client.models()
        assert (model.versions, model.path) == ((1,), f"stub:files?{folder}/m/1")
        with asked_all_the_time(pool) as found:
            put(folder / "m", 2)
            rolled(client, 2, 2)
            before = found[2.0]
            eventually(lambda: found[2.0] > before + 20)
        assert found[1.0] > 0
        assert answers(client) == 2.0
        assert answers(client, version=2) == 2.0
        with pytest.raises(errors.ModelNotFound, match="version 1 is not served; served: 2"):
            answers(client, version=1)
        with pytest.raises(errors.ModelNotFound, match="no version has the label 'stable'"):
            answers(client, version="stable")
        pool.await_log("model m: version 1 → 2, of stub:files?")
        assert client.models()[0].versions == (2,)


def test_a_broken_version_never_replaces_a_good_one(folder: Path) -> None:
    with pool_process(config(folder, "m")) as pool, pool.client() as client:
        with asked_all_the_time(pool) as found:
            put(folder / "m", 2, "cannot-load")
            pool.await_log("model m: version 2 failed to load; it is tried again when its files change")
            rolled(client, 1, 1)
            before = found[1.0]
            eventually(lambda: found[1.0] > before + 20)
        assert set(found) == {1.0}
        status = client.status()
        assert status.versions.broken == (f"stub:files?{folder}/m/2",)
        assert [slot.incarnation for slot in status.slots] == [1, 1]
        assert pool.text().count("version 1 → 2") == 1, "it is tried once"
        waits = run_command(pool, "reload", "--wait")
        assert waits.returncode == 1
        assert "did not start with" in waits.stderr
        assert f"stub:files?{folder}/m/2" in waits.stderr
        rolled(client, 1, 1)
        # Files that change are a reason to try again.
        (folder / "m" / "2" / "saved_model.pb").write_text("tell?n=2")
        rolled(client, 2, 2)
        assert client.status().versions.broken == ()


def test_a_version_that_only_the_second_slot_cannot_load_is_taken_back(folder: Path, gate: LoadGate) -> None:
    """The stub that was loaded once is another when the second slot loads it: the first one must not keep it."""
    with pool_process(config(folder, "m", keys=gate.keys)) as pool, pool.client() as client:
        with asked_all_the_time(pool) as found:
            gate.shut()
            put(folder / "m", 2)
            gate.await_someone()  # the first slot's has read what the second one's will not
            (folder / "m" / "2" / "saved_model.pb").write_text("cannot-load")
            gate.open()
            pool.await_log("model m: version 2 failed to load")
            assert client.status().slots[0].incarnation > 1, "the first slot had it"
            rolled(client, 1, 1)
            before = found[1.0]
            eventually(lambda: found[1.0] > before + 20)
        assert answers(client) == 1.0


def test_of_two_models_with_new_versions_the_good_one_is_served_and_the_broken_one_is_not(folder: Path) -> None:
    put(folder / "other", 4)
    with pool_process(config(folder, "m", "other", watch="300ms")) as pool, pool.client() as client:
        with asked_all_the_time(pool) as found, asked_all_the_time(pool, "other") as others:
            put(folder / "m", 2, "cannot-load")
            put(folder / "other", 5)
            rolled(client, 5, 5, model="other")
            pool.await_log("model m: version 2 failed to load; it is tried again when")
            rolled(client, 1, 1)
        assert set(found) == {1.0}
        assert set(others) <= {4.0, 5.0}
        assert (answers(client), answers(client, "other")) == (1.0, 5.0)


def test_versions_that_come_while_slots_are_rolled_are_served_in_the_end(folder: Path, gate: LoadGate) -> None:
    with pool_process(config(folder, "m", keys=gate.keys)) as pool, pool.client() as client:
        with asked_all_the_time(pool):
            gate.shut()
            put(folder / "m", 2)
            gate.await_someone()
            put(folder / "m", 3)
            put(folder / "m", 4)
            gate.open()
            pool.await_log("version 1 → 2")
            rolled(client, 4, 4)
        pool.await_log("version 2 → 4")
        assert answers(client) == 4.0


def test_a_worker_that_dies_during_the_switch_costs_no_version_and_no_job(folder: Path, gate: LoadGate) -> None:
    with pool_process(config(folder, "m", keys=gate.keys)) as pool, pool.client() as client:
        with asked_all_the_time(pool):
            gate.shut()
            put(folder / "m", 2)
            gate.await_someone()
            slot = next(slot for slot in client.status().slots if slot.replacement)
            os.kill(pid_of(slot), signal.SIGKILL)
            gate.open()
            rolled(client, 2, 2)
        assert answers(client) == 2.0


def test_a_version_that_is_removed_makes_way_and_the_last_one_is_served_on(folder: Path) -> None:
    put(folder / "m", 2)
    with pool_process(config(folder, "m")) as pool, pool.client() as client:
        assert served(client) == [2, 2]
        with asked_all_the_time(pool):
            shutil.rmtree(folder / "m" / "2")
            rolled(client, 1, 1)
            shutil.move(folder / "m", folder / "away")
            pool.await_log("cannot be read: No such file or directory; the loaded versions still serve")
            assert served(client) == [1, 1]
        assert "m" in client.status().versions.troubles
        put(folder / "away", 3)
        shutil.move(folder / "away", folder / "m")
        rolled(client, 3, 3)
        assert client.status().versions.troubles == {}


def test_without_a_watch_a_reload_finds_the_new_version(folder: Path) -> None:
    with pool_process(config(folder, "m", watch="off")) as pool, pool.client() as client:
        put(folder / "m", 2)
        with asked_all_the_time(pool):
            found = client.reload()
            assert [change.line for change in found.changes] == ["[[model]] m version: 1 → 2"]
            rolled(client, 2, 2)
        assert client.reload().changes == ()

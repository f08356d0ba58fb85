"""Models that come to a running pool, and go, while others are asked all the time: no job of those fails."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from integration.load_gate import LoadGate
from pool import errors, start
from support.commands import run_command
from support.pool_process import pool_process, stub_config
from support.processes import children, eventually, pid_of
from support.steady_clients import answers, asked_all_the_time, put

pytestmark = pytest.mark.replacement

ROW = np.ones((1,), np.float32)
ONE = '[[model]]\nname = "m"\npath = "stub:tell?n=1"\nbatching = "always"\ndevices = "all"\n'
MORE = '[[model]]\nname = "more"\npath = "stub:tell?n=7"\n'


def test_a_model_comes_goes_and_comes_again_and_no_job_of_another_fails() -> None:
    with pool_process(stub_config(models=ONE)) as pool, pool.client() as client:
        with asked_all_the_time(pool):
            found = run_command(pool, "load", "more", "stub:tell?n=7")
            assert found.returncode == 0, found.stderr
            assert found.stdout == "[[model]] more: is new\nslot 0 gets a new worker\n"
            assert answers(client, "more") == 7.0
            assert [slot.models for slot in client.status().slots] == [("m", "more"), ("m",)]
            found = run_command(pool, "load", "more", "stub:tell?n=8")
            assert found.stdout.startswith("[[model]] more path: "), found.stderr
            assert answers(client, "more") == 8.0
            found = run_command(pool, "unload", "more")
            assert found.returncode == 0, found.stderr
            assert found.stdout == "[[model]] more: is gone\nslot 0 gets a new worker\n"
            eventually(lambda: "more" not in {model.name for model in client.models()})
            with pytest.raises(errors.ModelNotFound, match="no model 'more'"):
                answers(client, "more")
            client.load("more", "stub:tell?n=9", wait=False)
            eventually(lambda: not client.status().rolling_update.left)
            assert answers(client, "more") == 9.0
        assert answers(client) == 1.0


def test_jobs_of_a_model_that_goes_are_finished_or_told_and_none_is_lost() -> None:
    models = ONE + '[[model]]\nname = "rows"\npath = "stub:rows?run_ms=40"\nbatching = "off"\ndevices = "all"\n'
    with pool_process(stub_config(models=models)) as pool, pool.client() as client, asked_all_the_time(pool):
        jobs = [client.submit("rows", ROW, signature="double", timeout=30.0) for _ in range(150)]
        client.unload("rows")
        errors_of = [job.exception(30) for job in jobs]
        done = sum(error is None for error in errors_of)
        assert done > 0, "what ran was finished"
        assert {type(error) for error in errors_of if error is not None} <= {errors.ModelNotFound}
        eventually(lambda: not client.status().rolling_update.left)
        with pytest.raises(errors.ModelNotFound):
            client.run("rows", ROW, signature="double")


@pytest.mark.parametrize("path", ["stub:cannot-load", "stub:load-exit"])
def test_a_model_that_does_not_come_up_is_given_up_and_nothing_else_is_touched(path: str) -> None:
    with pool_process(stub_config(models=ONE)) as pool, pool.client() as client:
        with asked_all_the_time(pool):
            found = run_command(pool, "load", "more", path)
            assert found.returncode == 1
            assert "slot 0 did not start with the new settings" in found.stderr
            eventually(lambda: [model.name for model in client.models()] == ["m"])
        pool.await_log("not served, because a worker could not load it: more")
        assert [slot.models for slot in client.status().slots] == [("m",), ("m",)]
        assert run_command(pool, "load", "more", "stub:tell?n=7").returncode == 0, "another path is another chance"
        assert answers(client, "more") == 7.0


def test_a_path_that_does_not_come_up_stays_with_nobody(tmp_path: Path) -> None:
    put(tmp_path / "b", 1)
    models = ONE + f'[[model]]\nname = "b"\npath = "stub:files?{tmp_path / "b"}"\ndevices = "all"\n'
    with pool_process(stub_config('watch = "100ms"', models=models)) as pool, pool.client() as client:
        with asked_all_the_time(pool):
            found = run_command(pool, "load", "m", "stub:cannot-load")
            assert (found.returncode, "model m: " in found.stderr) == (1, True), found.stderr
            found = run_command(pool, "load", "c", "stub:tell?n=7")
            assert (found.returncode, found.stderr) == (0, "")
            assert answers(client, "c") == 7.0
            put(tmp_path / "b", 2)
            eventually(lambda: answers(client, "b") == 2.0)
            eventually(lambda: not client.status().rolling_update.left)
            assert client.status().versions.broken == ()
            assert client.reload().to_dict() == {"changes": [], "slots": []}
        pool.await_log("the former version or settings are served, because a worker could not load it: m")
        os.kill(pid_of(client.status().slots[0]), signal.SIGKILL)
        eventually(lambda: [slot.state for slot in client.status().slots] == ["READY", "READY"])
        assert answers(client, device="slot:0") == 1.0


def test_where_the_old_worker_goes_first_a_model_that_cannot_load_costs_no_job_of_its_neighbours() -> None:
    config = stub_config(devices='["cpu"]', models=ONE, rest='[restart]\nreplacement = "off"')
    with pool_process(config) as pool, pool.client() as client, asked_all_the_time(pool):
        client.load("more", "stub:cannot-load", wait=False)
        pool.await_log("not served, because a worker could not load it: more")
        eventually(lambda: client.status().slots[0].state == "READY")


def test_a_further_copy_that_cannot_be_loaded_leaves_the_others_and_the_command_says_so(tmp_path: Path) -> None:
    (tmp_path / "once.py").write_text(
        "import os\nclass Once:\n    def __init__(self, context):\n"
        "        os.close(os.open(context.options['mark'], os.O_CREAT | os.O_EXCL))\n"
        "    def preprocess(self, inputs, signature):\n        return inputs\n"
    )
    one = ONE.replace('devices = "all"', "replicas = 1")
    keys = f'handler = "once:Once"\nhandler_path = "{tmp_path}"\nhandler_options = {{ mark = "{tmp_path / "mark"}" }}\n'
    with pool_process(stub_config(devices='["cpu", "cpu", "cpu"]', models=one)) as pool, pool.client() as client:
        with asked_all_the_time(pool):
            pool.config.write_text(pool.config.read_text() + MORE + keys)
            found = run_command(pool, "reload", "--wait")
        assert found.returncode == 0, found.stderr
        assert "model more could not be loaded in slot 2: " in found.stderr
        assert "File exists" in found.stderr
        assert [slot.models for slot in client.status().slots] == [("m",), ("more",), ()]
        assert answers(client, "more") == 7.0
        (tmp_path / "mark").unlink()
        (tmp_path / "once.py").touch()
        assert run_command(pool, "reload", "--wait").returncode == 0
        assert [slot.models for slot in client.status().slots] == [("m",), ("more",), ("more",)]


def test_slots_without_a_model_get_a_worker_and_lose_it_again() -> None:
    one = ONE.replace('devices = "all"', "replicas = 1")
    with pool_process(stub_config(models=one)) as pool, pool.client() as client:
        assert [slot.state for slot in client.status().slots] == ["READY", "STOPPED"]
        workers = children(pool.pid)
        assert run_command(pool, "load", "more", "stub:tell?n=7").returncode == 0
        assert [(slot.state, slot.models) for slot in client.status().slots] == [
            ("READY", ("m",)),
            ("READY", ("more",)),
        ]
        assert answers(client, "more") == 7.0
        assert [slot.incarnation for slot in client.status().slots] == [1, 1], "the other one was not touched"
        client.unload("more")
        eventually(lambda: client.status().slots[1].state == "STOPPED")
        eventually(lambda: children(pool.pid) == workers)
        assert client.status().slots[1].reason == "no model is placed here any more"
        assert answers(client) == 1.0


def test_what_was_loaded_lasts_over_a_reload_until_the_file_names_it(tmp_path: Path) -> None:
    with pool_process(stub_config(models=ONE)) as pool, pool.client() as client:
        client.load("more", "stub:tell?n=7")
        eventually(lambda: not client.status().rolling_update.left)
        assert client.reload().to_dict() == {"changes": [], "slots": []}
        assert answers(client, "more") == 7.0
        pool.config.write_text(pool.config.read_text() + MORE.replace("n=7", "n=8"))
        assert [change.key for change in client.reload().changes] == ["[[model]] more path"]
        eventually(lambda: not client.status().rolling_update.left)
        assert answers(client, "more") == 8.0
        pool.config.write_text(pool.config.read_text().replace(MORE.replace("n=7", "n=8"), ""))
        assert [change.line for change in client.reload().changes] == ["[[model]] more: is gone"]
        put(tmp_path / "numbered", 3)
        client.load("numbered", f"stub:files?{tmp_path / 'numbered'}")
        eventually(lambda: not client.status().rolling_update.left)
        assert answers(client, "numbered", version=3) == 3.0


def test_a_model_of_the_file_comes_back_by_its_name_and_no_other_does() -> None:
    with pool_process(stub_config(models=ONE + MORE + MORE.replace("more", "most"))) as pool, pool.client() as client:
        for name in ("more", "most"):
            client.unload(name)
        client.wait_updated(60.0)
        found = run_command(pool, "load", "more")
        assert found.returncode == 0, found.stderr
        assert answers(client, "more") == 7.0
        assert {model.name for model in client.models()} == {"m", "more"}


def test_a_worker_that_dies_while_models_change_costs_no_job(tmp_path: Path) -> None:
    gate = LoadGate(tmp_path)
    gate.shut()
    with pool_process(stub_config(models=ONE)) as pool, pool.client() as client:
        with asked_all_the_time(pool):
            client.load("more", "stub:rows", wait=False, **gate.options)
            gate.await_someone()
            slot = client.status().slots[0]
            assert slot.replacement is not None
            os.kill(pid_of(slot), signal.SIGKILL)
            gate.open()
            eventually(lambda: not client.status().rolling_update.left)
        assert client.run("more", ROW, signature="double")["y"].tolist() == [2.0]


def test_what_cannot_be_is_refused_in_a_line() -> None:
    with pool_process(stub_config(models=ONE)) as pool, pool.client() as client:
        for arguments, text in (
            (("load", "more", "/nowhere"), "model more: there is nothing at /nowhere"),
            (("load", "a b", "stub:echo"), "'a b' is not a name"),
            (("load", "nothing"), "has no model 'nothing'; there are: m"),
            (("unload", "nothing"), "no model 'nothing' is served; there are: m"),
            (("unload", "m"), "model m is the only one"),
        ):
            found = run_command(pool, *arguments)
            assert (found.returncode, found.stdout) == (2, "")
            assert text in found.stderr
        assert [slot.incarnation for slot in client.status().slots] == [1, 1]


def test_a_pool_without_a_file_takes_models_too() -> None:
    with start({"pool": {"devices": ["cpu"]}, "model": [{"name": "m", "path": "stub:tell?n=1"}]}) as client:
        client.load("more", "stub:tell?n=7")
        eventually(lambda: not client.status().rolling_update.left)
        assert answers(client, "more") == 7.0
        with pytest.raises(errors.InvalidState, match="no file to read again"):
            client.reload()
        with pytest.raises(errors.InvalidConfig, match="no file to read again"):
            client.load("more")

"""`pool start` and its configuration: which one it takes, and that its first line says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pool import errors
from support.commands import in_process
from support.pool_process import PoolProcess, pool_process

STUB = '[pool]\ndevices = ["cpu"]\n[[model]]\nname = "echo"\npath = "stub:echo"\n'


def first_line(folder: Path, *options: str) -> str:
    """Of a pool that ends as soon as it has said it: another user's folder is no place for its socket."""
    runtime = folder / "runtime"
    runtime.mkdir(exist_ok=True)
    runtime.chmod(0o777)
    (runtime / "pool").mkdir(exist_ok=True)
    (runtime / "pool").chmod(0o777)
    argv = [sys.executable, "-P", "-m", "pool", "start", "--log-format", "json", *options]
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, timeout=60, check=False)
    assert b"other users may write into it" in done.stderr, done.stderr
    line = json.loads(done.stderr.splitlines()[0])
    assert line["event"] == "configuration"
    return str(line["message"])


def test_the_configuration_is_the_one_named_else_the_one_that_lies_here_else_the_demo(tmp_path: Path) -> None:
    here, other = tmp_path / "config.toml", tmp_path / "other.toml"
    assert first_line(tmp_path) == "configuration: the built-in demo (no --config, and no config.toml in this folder)"
    here.write_text(STUB)
    assert first_line(tmp_path) == f"configuration: {here}"
    other.write_text(STUB)
    assert first_line(tmp_path, "--config", "other.toml") == f"configuration: {other}"
    here.write_text("[pool]\nlanes = 3\n")
    assert first_line(tmp_path) == f"configuration: {here} (no [[model]] in it: the built-in demo)"


@pytest.mark.parametrize("here", ["link", "folder", "wrong"])
def test_what_is_called_config_toml_is_never_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str
) -> None:
    config = tmp_path / "config.toml"
    match here:
        case "link":
            config.symlink_to("nowhere")
        case "folder":
            config.mkdir()
        case _:
            config.write_text("[pool]\nlines = 3\n")
    monkeypatch.chdir(tmp_path)
    done = in_process("start")
    assert done.status == 2, done
    assert "config.toml:" in done.err
    assert "demo" not in done.err


@pytest.mark.tensorflow
def test_a_file_without_a_model_serves_the_demo_with_its_own_settings_and_is_read_again() -> None:
    pool = PoolProcess('[pool]\nendpoint = "@endpoint@"\ndevices = ["cpu"]\n')
    try:
        pool.start().await_ready().await_log("next, in another terminal: ")
        with pool.client() as client:
            assert [slot.models for slot in client.status().slots] == [("digits",)]
            pool.config.write_text(pool.config.read_text() + "[queue]\nmax_jobs = 7\n")
            (change,) = client.reload().changes
            assert [change.key, change.after] == ["[queue] max_jobs", 7]
        assert pool.stop() == 0
    finally:
        pool.kill()


def test_the_demo_never_takes_the_place_of_models_that_are_served() -> None:
    """What is read may be a file that is being written."""
    empty = '[pool]\nendpoint = "@endpoint@"\ndevices = ["cpu"]\n'
    with pool_process(f'{empty}[[model]]\nname = "echo"\npath = "stub:echo"\n') as pool, pool.client() as client:
        pool.config.write_text(empty.replace("@endpoint@", pool.endpoint))
        with pytest.raises(errors.InvalidConfig, match="no model is configured"):
            client.reload()
        assert client.run("echo", 1.0)["x"] == 1.0

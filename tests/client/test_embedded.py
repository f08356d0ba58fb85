"""A pool inside a program: it comes with the block, and goes with it or with the process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pool
from pool import errors
from support.pools import STUB, are_gone, until


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(STUB)
    return tmp_path / "config.toml"


def test_it_lives_as_long_as_the_block_whatever_endpoint_the_configuration_names(config: Path) -> None:
    config.write_text(STUB.replace("[pool]", f'[pool]\nendpoint = "ipc://{config.parent}/pool.sock"', 1))
    with pool.start(config, timeout=20.0) as embedded:
        assert embedded.is_ready()
        told = embedded.status()["pool"]
        assert told["endpoint"] == embedded.endpoint
        assert embedded.run("plain", [[2]])["y"].item() == 4
        assert [each["y"].item() for each in embedded.map("double", [[[1]], [[2]]])] == [2, 4]
    assert are_gone(told["pid"])


def test_its_last_words_are_the_error_s(config: Path) -> None:
    config.write_text("[pool]\ncolour = 3\n")
    with pytest.raises((errors.InvalidConfig, errors.PoolUnreachable), match="colour"):
        pool.start(config)
    with pytest.raises(errors.InvalidConfig, match=r"nope\.toml: is not a file; write the path"):
        pool.start(config.with_name("nope.toml"))
    config.write_text('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "m"\npath = "stub:double?load=fail"\n')
    with pytest.raises(errors.ModelFailed, match="told to fail"):
        pool.start(config)


def test_a_forked_child_leaves_the_block_and_the_pool_stays(config: Path) -> None:
    code = """
import os, sys, pool
with pool.start(sys.argv[1]) as embedded:
    if not os.fork():
        sys.exit(embedded.run("plain", [[2]])["y"].item() != 4)
    assert os.wait()[1] == 0
    pool.Client(embedded.endpoint).close()
assert not os.path.exists(embedded.endpoint.removeprefix("ipc://").removesuffix("/pool.sock"))
"""
    ran = subprocess.run([sys.executable, "-c", code, str(config)], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_it_ends_with_a_program_that_is_killed(config: Path) -> None:
    code = """
import sys, time, pool
embedded = pool.start(sys.argv[1])
print(embedded.status()["pool"]["pid"], flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(config)], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        os.kill(program.pid, signal.SIGKILL)
    until(lambda: are_gone(pid), "the pool's end")

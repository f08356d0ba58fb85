"""How a pool is reached: by its name, as the machine's service, and by the members of a group, with real user ids."""

import contextlib
import grp
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pool import Client, errors
from support.commands import in_process, run_command
from support.pool_process import PoolProcess, stub_config

pytestmark = pytest.mark.remote

ECHO = '[pool]\ndevices = ["cpu"]\n[[model]]\nname = "echo"\npath = "stub:echo"\n'
POOLS_USER, MEMBER, STRANGER = 23456, 23457, 23458


def _cannot_be_several_users() -> str:
    """Why not; "" where it can."""
    if os.getuid() != 0:
        return "only root can be several users"
    tried = [sys.executable, "-P", "-c", "import pool.client.client, numpy"]
    try:
        done = subprocess.run(tried, user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", capture_output=True)
    except PermissionError:
        return f"other users may not run {sys.executable}"
    return "" if done.returncode == 0 else f"other users may not read what {sys.executable} imports"


_CANNOT = _cannot_be_several_users()
several_users = pytest.mark.skipif(bool(_CANNOT), reason=_CANNOT)

BECOME = """
import json, os, sys
uid, groups, *argv = sys.argv[1:]
os.setgroups(json.loads(groups)); os.setgid(int(uid)); os.setuid(int(uid))
os.execv(sys.executable, [sys.executable, "-P", "-m", "pool", *argv])
"""

TRY = """
import json, os, sys
import numpy as np
from pool import Client, errors
uid, groups, endpoint, looks_s = json.loads(sys.argv[1])
os.setgroups(groups); os.setgid(uid); os.setuid(uid)
said = {}
with Client(endpoint, connect_timeout=looks_s) as client:
    try:
        large = np.ones(1 << 20, np.float32)
        for _ in range(50):  # a grant that takes long on a busy machine is for a later job
            said["echoed"] = bool((client.run("echo", large)["x"] == large).all())
            said["lent"] = client.status().lent_bytes
            if said["lent"]:
                break
    except errors.PoolError as error:
        said["refused"] = str(error)
        print(json.dumps(said))
        sys.exit()
    try:
        client.session("counter").run("add/total:0", {"add/n:0": 1})
    except errors.InvalidInput as error:
        said["may not write"] = str(error)
    owners = lambda: client.restart(0), lambda: client.drain(0), lambda: client.load("x", "stub:echo")
    for what in (client.reload, *(owners if groups else ()), client.stop):
        try:
            what()
        except errors.PoolError as error:
            said.setdefault("not allowed", []).append(str(error))
print(json.dumps(said))
"""


def as_user(uid: int, groups: list[int], endpoint: str | None, environ: Mapping[str, str] | None = None) -> Any:
    looks_s = 0.5 if uid == STRANGER else 30.0  # who may come is let in, however late the pool hears of him
    asked = json.dumps([uid, groups, endpoint, looks_s])
    done = subprocess.run(
        [sys.executable, "-P", "-c", TRY, asked],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd="/",
        env={**os.environ, **(environ or {})},
    )
    return json.loads(done.stdout)


@contextlib.contextmanager
def started(pool: PoolProcess) -> Iterator[PoolProcess]:
    try:
        yield pool.start().await_ready()
        if pool.running.poll() is None:
            assert pool.stop() == 0, pool.text()
    finally:
        pool.kill()


# --- names


def test_pools_with_names_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    pools = [PoolProcess(ECHO, options=["--name", name]) for name in ("a", "b")]
    with started(pools[0]), started(pools[1]):
        endpoints = [f"ipc://{tmp_path}/pool/{name}.sock" for name in ("a", "b")]
        for name, pool, endpoint in zip("ab", pools, endpoints, strict=True):
            found = json.loads(in_process("status", "--json", "--name", name).out)
            assert (found["pid"], found["endpoint"]) == (pool.pid, endpoint)
            with Client(name) as client:
                assert client.status().pid == pool.pid
        assert in_process("submit", "echo", "--input", "1", "--name", "b").status == 0
        with monkeypatch.context() as patch:
            patch.setenv("POOL_ENDPOINT", "a")
            assert in_process("submit", "echo", "--input", "1").status == 0
        second = run_command(None, "start", "--config", str(pools[0].config), "--name", "a")
        assert second.returncode == 1
        assert f"a pool is already running at {endpoints[0]} (pid {pools[0].pid})" in second.stderr
        assert in_process("stop", "--name", "a").out == f"stopped (pid {pools[0].pid})\n"
        assert pools[0].wait() == 0
        none = in_process("stop", "--name", "a")
        assert (none.status, none.err) == (1, f"pool: no pool runs at {endpoints[0]} or ipc:///run/pool-a/a.sock\n")
        assert in_process("status", "--name", "b").status == 0
    assert list((tmp_path / "pool").iterdir()) == []


def test_a_name_wins_over_the_endpoint_of_the_file_also_when_it_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    pool = PoolProcess(stub_config(), options=["--name", "mine"])
    with started(pool), Client("mine") as client:
        assert not pool.socket.exists()
        pool.config.write_text(pool.config.read_text() + "[queue]\nmax_jobs = 7\n")
        assert [change.key for change in client.reload().changes] == ["[queue] max_jobs"]


@pytest.mark.parametrize("name", ["a/b", "..//x", "", "a b", "%i", "ü"])
def test_what_is_no_name_is_refused(name: str) -> None:
    status, _, err = in_process("start", "--name", name)
    assert status == 2
    assert "is not a name; write letters, digits" in err


# --- the machine's service


@pytest.fixture
def service() -> Iterator[str]:
    """The name of one: systemd makes the folder, and tells the pool of it."""
    name = f"pt-{os.getpid()}"
    folder = Path(f"/run/pool-{name}")
    folder.mkdir(0o700)
    yield name
    folder.rmdir()


@several_users
def test_the_machines_service_is_found_by_who_has_no_pool(service: str) -> None:
    endpoint = f"ipc:///run/pool-{service}/{service}.sock"
    pool = PoolProcess(ECHO, {"XDG_RUNTIME_DIR": "", "RUNTIME_DIRECTORY": f"/run/pool-{service}"}, ["--name", service])
    with started(pool):
        with Client(service) as client:
            assert client.status().endpoint == client.endpoint == endpoint
        assert f"no pool runs at ipc://{os.environ['XDG_RUNTIME_DIR']}" in in_process("stop").err
        refused = as_user(STRANGER, [], service, {"XDG_RUNTIME_DIR": "/nowhere"})["refused"]
        own = f"ipc:///nowhere/pool/{service}.sock (No such file or directory)"
        assert refused.startswith(f"no pool answers at {own} or {endpoint} (Permission denied)")
        assert in_process("stop", "--name", service).out == f"stopped (pid {pool.pid})\n"
        assert pool.wait() == 0


# --- a group


@pytest.fixture
def group() -> Any:
    """Any of this machine but root's."""
    return next(each for each in grp.getgrall() if each.gr_gid)


def of_group(group: str, groups: list[int]) -> PoolProcess:
    """A pool of another user, who is in these groups."""
    pool = PoolProcess(stub_config(f'group = "{group}"'))
    pool.program = ["-c", BECOME, str(POOLS_USER), json.dumps(groups)]
    for path in (pool.folder, pool.config, pool.state):
        os.chown(path, POOLS_USER, POOLS_USER)
    pool.folder.chmod(0o711)
    return pool


@several_users
def test_the_members_of_the_group_may_submit_and_ask_and_nobody_else(group: Any) -> None:
    pool = of_group(group.gr_name, [group.gr_gid])
    with started(pool):
        for suffix, mode in {"": 0o660, ".memory": 0o660, ".workers": 0o600, ".lock": 0o600}.items():
            status = os.stat(f"{pool.socket}{suffix}")
            assert (status.st_mode & 0o777, status.st_uid) == (mode, POOLS_USER), suffix
        said = as_user(MEMBER, [group.gr_gid], pool.endpoint)
        assert said["echoed"]
        assert said["lent"] > 0, "the large tensor went through shared memory"
        assert said["may not write"].endswith('the right "sessions" in its `may`')
        assert len(said["not allowed"]) == 5
        assert all("only at the local endpoint, from the pool's own user" in text for text in said["not allowed"])
        refused = as_user(STRANGER, [], pool.endpoint)
        assert refused["refused"].startswith(f"no pool answers at {pool.endpoint}")
        owners = as_user(POOLS_USER, [], pool.endpoint)
        assert owners["echoed"]
        assert not {"not allowed", "may not write"} & owners.keys(), "it was told to stop, among other things"
        assert pool.wait() == 0


@several_users
def test_a_pool_whose_user_is_no_member_is_refused(group: Any) -> None:
    pool = of_group(group.gr_name, [])
    try:
        assert pool.start().wait() == 2
        assert f"the pool's user is no member of {group.gr_name}; add it with `usermod -aG" in pool.text()
        assert {path.name for path in pool.folder.iterdir()} == {"config.toml", "log"}
    finally:
        pool.kill()


def test_a_group_that_this_machine_does_not_have_is_refused() -> None:
    pool = PoolProcess(stub_config('group = "no-such-group"'))
    try:
        assert pool.start().wait() == 2
        assert "[pool] group: this machine has no group 'no-such-group'" in pool.text()
    finally:
        pool.kill()


def test_a_group_that_cannot_pass_the_folder_is_refused() -> None:
    """mkdtemp makes it 0700."""
    group = grp.getgrgid(os.getgid()).gr_name
    pool = PoolProcess(stub_config(f'group = "{group}"'))
    try:
        assert pool.start().wait() == 2
        assert f"the members of {group} cannot pass {pool.folder}" in pool.text()
        with pytest.raises(errors.PoolUnreachable), pool.client(connect_timeout=0.1) as client:
            client.status()
    finally:
        pool.kill()

"""The unit in the hands of a real manager: `systemd --user`, in mount and pid namespaces of the test's own."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.systemd.unit import UNIT_NAME
from support.commands import command_line
from support.processes import children, eventually

pytestmark = pytest.mark.faults

SYSTEMD = next((path for path in ("/usr/lib/systemd/systemd", "/lib/systemd/systemd") if Path(path).exists()), None)
UP_S = 15.0
RUN = "/run/pool-test"

# `systemd --user` asks for a machine that systemd has booted. As the first process of a pid namespace it would take
# itself for that machine's; so a shell is the first.
SCRIPT = f"""
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system {RUN} && chmod 700 {RUN} || exit 3
{SYSTEMD} --user --log-target=console --log-level=info &
wait
"""

CONFIG = '[pool]\ndevices = ["cpu"]\n[[model]]\nname = "rows"\npath = "stub:rows"\nbatching = "always"\n'


class Manager:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self._environ = {
            **{key: value for key, value in os.environ.items() if key not in ("NOTIFY_SOCKET", "LISTEN_FDS")},
            "XDG_RUNTIME_DIR": RUN,
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        with self.log.open("wb") as log:
            self._unshare = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", SCRIPT],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environ,
            )
        self._first: int | None = None

    def is_up(self) -> bool:
        found = children(self._unshare.pid)
        if not found or self._unshare.poll() is not None:
            return False
        self._first = found[0]
        return self("systemctl", "--user", "is-system-running").stdout.strip() in ("running", "degraded")

    def __call__(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """A command beside the manager."""
        return subprocess.run(
            ["nsenter", "--target", str(self._first), "--mount", "--pid", *command],
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def systemctl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self("systemctl", "--user", *arguments)

    def pool(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return self(*command_line(None, *arguments))

    def slot(self) -> tuple[str, int]:
        """State and incarnation of the pool's only slot."""
        (slot,) = json.loads(self.pool("status", "--json").stdout)["slots"]
        return slot["state"], slot["incarnation"]

    def shown(self, name: str) -> str:
        """One of the unit's properties."""
        return self.systemctl("show", "--property", name, "--value", UNIT_NAME).stdout.strip()

    def close(self) -> None:
        if self._first is not None:
            self.systemctl("exit")  # takes its control groups along
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._unshare.wait(10)
        self._unshare.kill()  # with its first process, all of the namespace go
        self._unshare.wait(10)


@pytest.fixture
def manager() -> Iterator[Manager]:
    if os.getuid() != 0 or SYSTEMD is None or not all(map(shutil.which, ("unshare", "nsenter", "systemctl"))):
        pytest.skip("a manager of the test's own takes root, systemd, unshare and nsenter")
    with tempfile.TemporaryDirectory(prefix="pt-") as name:
        manager = Manager(Path(name))
        try:
            deadline = time.monotonic() + UP_S
            while not manager.is_up():
                if time.monotonic() > deadline:
                    pytest.skip(f"no `systemd --user` runs here: {manager.log.read_text(errors='replace')[-500:]}")
                time.sleep(0.1)
            yield manager
        finally:
            manager.close()


def test_a_manager_starts_reloads_and_stops_the_pool(manager: Manager) -> None:
    config = manager.folder / "config.toml"
    config.write_text(CONFIG)
    installed = manager.pool("systemd", "install", "--user", "--config", str(config))
    assert installed.returncode == 0, installed.stderr
    assert manager.systemctl("daemon-reload").returncode == 0
    started = manager.systemctl("start", UNIT_NAME)
    assert started.returncode == 0, manager.systemctl("status", UNIT_NAME).stdout
    assert manager.shown("ActiveState") == "active"
    assert manager.shown("StatusText") == "1 of 1 slots serve"
    first = manager.shown("MainPID")

    config.write_text(CONFIG + "[queue]\nmax_jobs = 9\n[tensorflow]\njit = true\n")
    reloaded = manager.systemctl("reload", UNIT_NAME)
    assert reloaded.returncode == 0, reloaded.stderr
    eventually(lambda: manager.slot() == ("READY", 2))

    config.write_text(CONFIG + "[queue]\nmax_jobs = 0\n")
    assert manager.systemctl("reload", UNIT_NAME).returncode != 0, "who asks is told"
    assert manager.shown("StatusText") == "not reloaded; see the log"
    assert (manager.shown("ActiveState"), manager.shown("MainPID")) == ("active", first)

    config.write_text(CONFIG)
    assert manager("kill", "-HUP", first).returncode == 0
    eventually(lambda: manager.slot() == ("READY", 3))
    eventually(lambda: manager.shown("SubState") == "running")
    assert json.loads(manager.pool("reload", "--json").stdout)["changes"] == []
    assert manager.shown("MainPID") == first

    assert manager.systemctl("stop", UNIT_NAME).returncode == 0
    assert (manager.shown("ActiveState"), manager.shown("Result")) == ("inactive", "success")
    assert manager("ls", f"{RUN}/pool").stdout == ""


def test_a_manager_runs_two_instances_of_one_template(manager: Manager) -> None:
    for name, model in (("a", "rows"), ("b", "echo")):
        config = manager.folder / f"{name}.toml"
        config.write_text(CONFIG.replace("rows", model))
        installed = manager.pool("systemd", "install", "--user", "--name", name, "--config", str(config))
        assert installed.returncode == 0, installed.stderr
        assert manager.systemctl("daemon-reload").returncode == 0
        started = manager.systemctl("start", f"pool@{name}.service")
        assert started.returncode == 0, manager.systemctl("status", f"pool@{name}.service").stdout
    for name, model in (("a", "rows"), ("b", "echo")):
        (slot,) = json.loads(manager.pool("status", "--json", "--name", name).stdout)["slots"]
        assert slot["models"] == [model]
    (manager.folder / "a.toml").write_text(CONFIG + "[queue]\nmax_jobs = 0\n")
    assert manager.systemctl("reload", "pool@a.service").returncode != 0, "its own file is refused"
    assert manager.systemctl("reload", "pool@b.service").returncode == 0
    assert manager.systemctl("stop", "pool@a.service").returncode == 0
    assert manager.pool("status", "--name", "a").returncode == 1
    assert manager.pool("status", "--name", "b").returncode == 0

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pool.errors import InvalidConfig
from pool.systemd import Notifier, unit


@pytest.mark.parametrize("user", [None, "root"])
def test_systemd_accepts_the_unit(tmp_path: Path, user: str | None) -> None:
    text = unit(sys.executable, "/etc/a.toml", 30.0, user, "daemon")
    assert f"{sys.executable} -P -m pool start --config /etc/a.toml\n" in text
    assert ("User=root\nSupplementaryGroups=daemon\n" in text) is bool(user)
    assert ("RuntimeDirectoryMode=0711" in text) is bool(user)
    assert "TimeoutStopSec=45\n" in text
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    file = tmp_path / "tf-worker-pool.service"
    file.write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", *([] if user else ["--user"]), str(file)]
    run = subprocess.run(command, capture_output=True, text=True, env={"XDG_RUNTIME_DIR": str(tmp_path)})
    assert [line for line in run.stderr.splitlines() if file.name in line] == []


@pytest.mark.parametrize("bad", [{"python": "/a'b"}, {"python": "/$a"}, {"config": "/a\nUser=root"}, {"user": "a%u"}])
def test_what_would_change_the_unit_is_refused(bad: dict[str, str]) -> None:
    given = {"python": "/usr/bin/python3", "config": "/etc/pool.toml", "user": "pool"} | bad
    with pytest.raises(InvalidConfig, match=r"systemd"):
        unit(given["python"], given["config"], 30.0, given["user"], None)


def test_the_manager_is_told_state_status_and_life(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{tmp_path}/notify")
        manager.settimeout(5)
        environ = {"NOTIFY_SOCKET": f"{tmp_path}/notify", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}
        notifier = Notifier(environ, 7)
        notifier.tell("2 of 2", "READY=1")
        assert manager.recv(100) == b"READY=1\nSTATUS=2 of 2"
        notifier.tell("one")
        notifier.alive(100.0)
        notifier.alive(109.9)
        assert notifier.next_alive == 110.0
        notifier.alive(110.0)
        assert [manager.recv(100) for _ in range(3)] == [b"STATUS=one", b"WATCHDOG=1", b"WATCHDOG=1"]
        assert Notifier(environ, 8).next_alive == float("inf")
    Notifier({}, 7).tell("without a manager nothing happens", "READY=1")


def test_a_state_is_owed_until_it_could_be_sent(tmp_path: Path) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": f"{tmp_path}/notify", "WATCHDOG_USEC": "3000000"}, 7)
    notifier.tell("going", "STOPPING=1\nEXTEND_TIMEOUT_USEC=5")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        notifier.alive(1.0)
        assert manager.recv(100) == b"STOPPING=1\nEXTEND_TIMEOUT_USEC=5\nWATCHDOG=1"
        manager.setblocking(False)
        for number in range(5000):  # nobody reads
            notifier.tell(f"{number}")

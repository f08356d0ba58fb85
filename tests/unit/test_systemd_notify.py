"""What the service manager is told, on a real socket of its kind."""

import contextlib
import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.systemd.notify import STATUS_BYTES, Notifier

PID = 4711


class Manager:
    """The manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(b"\0" + address[1:].encode() if address.startswith("@") else address)
        self.socket.setblocking(False)

    def heard(self) -> list[str]:
        """Every message since the last time."""
        messages = []
        with contextlib.suppress(BlockingIOError):
            while True:
                messages.append(self.socket.recv(65536).decode())
        return messages


@pytest.fixture
def folder() -> Iterator[Path]:
    """pytest's own folders are too deep for the path of a socket."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, folder: Path) -> Iterator[Manager]:
    manager = Manager(f"{folder}/notify" if request.param == "path" else f"@pool-test-{os.getpid()}")
    with contextlib.closing(manager.socket):
        yield manager


def notifier_of(manager: Manager, **environ: str) -> "contextlib.closing[Notifier]":
    return contextlib.closing(Notifier.from_environ({"NOTIFY_SOCKET": manager.address, **environ}, PID))


def test_the_life_of_a_pool(manager: Manager) -> None:
    with notifier_of(manager) as notifier:
        notifier.status("slot 0 loads")
        notifier.extend(2.5)
        notifier.ready("1 of 1 slots serve")
        notifier.reloading("reads config.toml", 123_456)
        notifier.ready("2 of 2 slots serve")
        notifier.stopping("SIGTERM came")
        assert manager.heard() == [
            "STATUS=slot 0 loads",
            "EXTEND_TIMEOUT_USEC=2500000",
            "READY=1\nSTATUS=1 of 1 slots serve",
            "RELOADING=1\nMONOTONIC_USEC=123456\nSTATUS=reads config.toml",
            "READY=1\nSTATUS=2 of 2 slots serve",
            "STOPPING=1\nSTATUS=SIGTERM came",
        ]


def test_a_status_is_sent_when_it_is_new(manager: Manager) -> None:
    with notifier_of(manager) as notifier:
        notifier.ready("serves")
        for text in ("serves", "slot 1 is gone", "slot 1 is gone", "serves"):
            notifier.status(text)
        assert manager.heard() == ["READY=1\nSTATUS=serves", "STATUS=slot 1 is gone", "STATUS=serves"]


@pytest.mark.parametrize("text", ["died\nREADY=1", "died\rREADY=1", "died\0READY=1", "died\u2028READY=1"])
def test_a_text_makes_no_assignment_of_its_own(manager: Manager, text: str) -> None:
    with notifier_of(manager) as notifier:
        notifier.status(text)
        assert manager.heard() == ["STATUS=died READY=1"]


def test_a_text_is_short_and_whole(manager: Manager) -> None:
    with notifier_of(manager) as notifier:
        notifier.ready("x" + "é" * 10_000)
        notifier.status("\ud800 is half a character")
        long, half = manager.heard()
    assert long == "READY=1\nSTATUS=x" + "é" * ((STATUS_BYTES - 1) // 2)
    assert half == "STATUS=  is half a character"


@pytest.mark.parametrize(
    ("seconds", "usec"), [(0.0, 0), (-1.0, 0), (1e-7, 1), (float("inf"), 604_800_000_000), (float("nan"), 0)]
)
def test_any_extension_is_a_number_that_the_manager_reads(manager: Manager, seconds: float, usec: int) -> None:
    with notifier_of(manager) as notifier:
        notifier.extend(seconds)
        assert manager.heard() == [f"EXTEND_TIMEOUT_USEC={usec}"]


def test_the_watchdog_hears_every_third_of_its_interval(manager: Manager) -> None:
    with notifier_of(manager, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(PID)) as notifier:
        assert notifier.next_alive(100.0) == 100.0
        notifier.alive(100.0)
        assert manager.heard() == ["WATCHDOG=1"]
        assert notifier.next_alive(100.0) == 110.0
        notifier.alive(109.9)
        assert manager.heard() == []
        notifier.alive(110.0)
        assert manager.heard() == ["WATCHDOG=1"]
        assert notifier.next_alive(500.0) == 500.0  # the loop was late
        notifier.alive(500.0)
        assert notifier.next_alive(500.0) == 510.0


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(PID + 1)},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "-5"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "²"},
        {"WATCHDOG_USEC": "9" * 400},
    ],
)
def test_a_watchdog_of_nobody_or_another_is_not_fed(manager: Manager, environ: dict[str, str]) -> None:
    with notifier_of(manager, **environ) as notifier:
        assert notifier.next_alive(0.0) is None
        notifier.alive(0.0)
        assert manager.heard() == []


def test_a_watchdog_without_a_pid_is_ours(manager: Manager) -> None:
    with notifier_of(manager, WATCHDOG_USEC="3000000") as notifier:
        notifier.alive(0.0)
        assert notifier.next_alive(0.0) == 1.0


@pytest.mark.parametrize("address", [None, "", "vsock:2:1", "relative/path"])
def test_without_a_manager_nothing_happens(address: str | None) -> None:
    environ = {"WATCHDOG_USEC": "3000000"} | ({} if address is None else {"NOTIFY_SOCKET": address})
    with contextlib.closing(Notifier.from_environ(environ, PID)) as notifier:
        use_all(notifier)
        assert notifier.next_alive(0.0) is None


@pytest.mark.parametrize("name", ["missing", "deep" * 50])
def test_a_socket_that_is_not_there_is_told_of_once(folder: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pool.systemd")
    with contextlib.closing(Notifier.from_environ({"NOTIFY_SOCKET": f"{folder}/{name}"}, PID)) as notifier:
        use_all(notifier)
        use_all(notifier)
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


def test_a_full_socket_blocks_nobody(manager: Manager) -> None:
    with notifier_of(manager, WATCHDOG_USEC="3000000") as notifier:
        for number in range(2000):
            notifier.status(f"{number}")
        notifier.alive(0.0)
        assert notifier.next_alive(0.0) == 1.0  # no busy loop while the manager is slow
        assert 0 < len(manager.heard()) < 2000


def test_what_the_manager_acts_on_goes_out_with_the_next_message(manager: Manager) -> None:
    with notifier_of(manager, WATCHDOG_USEC="3000000") as notifier:
        fill(notifier)
        notifier.ready("serves")
        manager.heard()
        notifier.alive(0.0)
        notifier.status("serves")
        assert manager.heard() == ["READY=1\nWATCHDOG=1", "STATUS=serves"]
        fill(notifier)
        notifier.reloading("reads", 1)
        notifier.stopping("SIGTERM came")
        manager.heard()
        notifier.extend(1.0)
        assert manager.heard() == ["STOPPING=1\nEXTEND_TIMEOUT_USEC=1000000"]


def test_the_manager_may_make_its_socket_anew(folder: Path) -> None:
    address = f"{folder}/notify"
    with contextlib.closing(Notifier.from_environ({"NOTIFY_SOCKET": address}, PID)) as notifier:
        for text in ("before", "after"):
            manager = Manager(address)
            with contextlib.closing(manager.socket):
                notifier.status(text)
                assert manager.heard() == [f"STATUS={text}"]
            os.unlink(address)


def test_closed_is_silent(manager: Manager) -> None:
    with notifier_of(manager, WATCHDOG_USEC="3000000") as notifier:
        notifier.close()
        use_all(notifier)
        assert notifier.next_alive(0.0) is None
        assert manager.heard() == []


def test_neither_environment_is_changed(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    before = dict(os.environ)
    with contextlib.closing(Notifier.from_environ(os.environ, PID)) as notifier:
        use_all(notifier)
    assert dict(os.environ) == before


def use_all(notifier: Notifier) -> None:
    notifier.status("starts")
    notifier.extend(1.0)
    notifier.ready("serves")
    notifier.reloading("reads", 1)
    notifier.alive(0.0)
    notifier.stopping("stops")


def fill(notifier: Notifier) -> None:
    """Until the manager's queue takes no more."""
    for number in range(2000):
        notifier.status(f"fills {number}")

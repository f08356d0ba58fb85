"""Where a pool listens, and that exactly one does."""

import grp
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.endpoint import (
    MAX_PATH_BYTES,
    WORKERS_SUFFIX,
    EndpointInUse,
    EndpointLock,
    admit,
    default_endpoint,
    holder,
    ipc_path,
    obstacle,
    prepare_folder,
    why_silent,
)
from pool.errors import InvalidConfig

HOLD = """
import sys
from pathlib import Path
from pool.endpoint import EndpointLock
lock = EndpointLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""

Hold = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pool.sock"


@pytest.fixture
def hold(path: Path) -> Iterator[Hold]:
    """Starts a process that holds the endpoint."""
    children: list[subprocess.Popen[Any]] = []

    def start() -> "subprocess.Popen[bytes]":
        child = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate(timeout=10)


def lock_file(path: Path) -> Path:
    return path.with_name("pool.sock.lock")


# --- the address ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "run_user", "expected"),
    [
        ({"XDG_RUNTIME_DIR": "/run/user/7", "RUNTIME_DIRECTORY": "/run/p"}, True, "ipc:///run/user/7/pool/pool.sock"),
        ({"RUNTIME_DIRECTORY": "/run/p"}, True, "ipc:///run/p/pool.sock"),
        ({"RUNTIME_DIRECTORY": "/run/p:/run/q"}, True, "ipc:///run/p/pool.sock"),
        ({}, True, "ipc:///run/user/7/pool/pool.sock"),
        ({}, False, "ipc:///tmp/pool-7/pool.sock"),
        ({"XDG_RUNTIME_DIR": "", "RUNTIME_DIRECTORY": ""}, False, "ipc:///tmp/pool-7/pool.sock"),
    ],
)
def test_the_default_is_the_first_folder_there_is(
    environ: dict[str, str], run_user: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda folder: run_user and str(folder) == "/run/user/7")
    assert default_endpoint(environ, 7) == expected


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "ipc://",
        "ipc:///",
        "ipc:///run/pool/",
        "ipc://pool.sock",
        "ipc://@abstract",
        "tcp://[::1]:5",
        "/p.sock",
        "ipc:///m\udcff",
    ],
)
def test_what_is_no_socket_path_is_told_what_would_be(endpoint: str) -> None:
    with pytest.raises(
        InvalidConfig, match=r"write ipc:// and an absolute path in UTF-8, such as ipc:///run/pool/pool\.sock"
    ):
        ipc_path(endpoint)


def test_a_nul_is_no_part_of_a_path() -> None:
    with pytest.raises(InvalidConfig, match="write ipc://"):
        ipc_path("ipc:///run/pool\0/pool.sock")


@pytest.mark.parametrize("letter", ["a", "ü"])
def test_the_workers_socket_must_fit_too(letter: str) -> None:
    room = MAX_PATH_BYTES - len("/tmp/") - len(WORKERS_SUFFIX)
    width = len(letter.encode())
    name = letter * (room // width) + "a" * (room % width)
    assert ipc_path(f"ipc:///tmp/{name}") == Path(f"/tmp/{name}")
    with pytest.raises(InvalidConfig, match="the path is 3 bytes too long for a Unix socket"):
        ipc_path(f"ipc:///tmp/{name}aaa")


# --- the folder -------------------------------------------------------------------------------------------------


def test_a_missing_folder_is_made_for_us_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "pool"
    old = os.umask(0)
    try:
        prepare_folder(folder / "pool.sock")
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    prepare_folder(folder / "pool.sock")


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o720])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(InvalidConfig, match=f"other users may write into it; run chmod 0700 {tmp_path}"):
        prepare_folder(tmp_path / "pool.sock")


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755, 0o1777])
def test_a_folder_where_nobody_can_replace_our_files_is_taken(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    prepare_folder(tmp_path / "pool.sock")


def test_a_link_is_refused_wherever_it_leads(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    for name, target in [("to folder", "real"), ("to nothing", "missing")]:
        link = tmp_path / name
        link.symlink_to(tmp_path / target)
        with pytest.raises(InvalidConfig, match=f"endpoint folder {link}"):
            prepare_folder(link / "pool.sock")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("file", "file/deeper"):
        with pytest.raises(InvalidConfig, match=f"endpoint folder {tmp_path / folder}"):
            prepare_folder(tmp_path / folder / "pool.sock")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_another_users_folder_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(InvalidConfig, match="belongs to uid 12345, not to uid 0"):
        prepare_folder(tmp_path / "pool.sock")


# --- the lock ---------------------------------------------------------------------------------------------------


def test_a_second_lock_names_the_holder(path: Path) -> None:
    lock = EndpointLock(path)
    with pytest.raises(EndpointInUse, match=rf"already running at ipc://{path} \(pid {os.getpid()}\)"):
        EndpointLock(path)
    assert holder(path) == os.getpid()
    lock.release()


def test_release_leaves_nothing(path: Path) -> None:
    EndpointLock(path).release()
    assert list(path.parent.iterdir()) == []
    assert holder(path) is None
    EndpointLock(path).release()


def test_the_lock_is_ours_alone_and_not_for_our_children(path: Path) -> None:
    lock = EndpointLock(path)
    assert stat.S_IMODE(lock_file(path).stat().st_mode) == 0o600
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False) as child:
        os.close(lock._fd)  # as if we had died
        EndpointLock(path).release()
        child.kill()


def test_another_process_is_named_and_its_death_frees_the_endpoint(path: Path, hold: Hold) -> None:
    child = hold()
    assert holder(path) == child.pid
    with pytest.raises(EndpointInUse, match=rf"pid {child.pid}\); `pool stop` ends it"):
        EndpointLock(path)
    child.kill()
    child.wait(10)
    assert lock_file(path).read_text() == f"{child.pid}\n"  # SIGKILL leaves the file, and nobody holds it
    assert holder(path) is None
    lock = EndpointLock(path)
    assert holder(path) == os.getpid()
    assert lock_file(path).read_text() == f"{os.getpid()}\n"
    lock.release()


def test_one_that_is_stopped_is_told_from_one_that_runs_and_from_none(path: Path, hold: Hold) -> None:
    endpoint = f"ipc://{path}"
    assert why_silent(endpoint) == why_silent("tcp://127.0.0.1:1") == ""
    child = hold()
    assert why_silent(endpoint).startswith(f"its process (pid {child.pid}) lives")
    child.send_signal(signal.SIGSTOP)
    os.waitpid(child.pid, os.WUNTRACED)
    assert why_silent(endpoint) == f"its process (pid {child.pid}) is stopped; `kill -CONT {child.pid}` lets it go on"


@pytest.mark.parametrize("content", ["4194305\n", "999999999999999999999999999\n", "", "\0\xff no number"])
def test_what_a_dead_pool_left_is_overwritten(path: Path, content: str) -> None:
    lock_file(path).write_text(content)
    path.touch()
    assert holder(path) is None
    lock = EndpointLock(path)
    assert lock_file(path).read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_held_lock_without_a_pid_is_in_use_all_the_same(path: Path) -> None:
    lock = EndpointLock(path)
    os.ftruncate(lock._fd, 0)
    with pytest.raises(EndpointInUse, match="pid unknown"):
        EndpointLock(path)
    assert holder(path) is None
    lock.release()


def test_a_holder_that_removes_the_file_between_our_open_and_our_lock(path: Path) -> None:
    former = EndpointLock(path)
    opened: list[int] = []

    class Late(EndpointLock):
        def _open(self) -> int:
            opened.append(super()._open())
            if len(opened) == 1:
                former.release()
            return opened[-1]

    lock = Late(path)
    assert len(opened) == 2
    # What is held is the file of that name, not the one that is gone.
    assert holder(path) == os.getpid()
    with pytest.raises(EndpointInUse):
        EndpointLock(path)
    lock.release()


def test_a_file_that_another_pool_made_is_not_removed(path: Path) -> None:
    first = EndpointLock(path)
    lock_file(path).unlink()  # somebody cleans up /tmp
    second = EndpointLock(path)
    first.release()
    assert holder(path) == os.getpid()
    second.release()
    assert not lock_file(path).exists()


def test_asking_does_not_keep_a_pool_from_starting(path: Path) -> None:
    lock_file(path).touch()
    assert holder(path) is None
    EndpointLock(path).release()


def test_a_lock_file_that_is_a_link_is_not_followed(path: Path) -> None:
    target = path.with_name("precious")
    target.write_text("data")
    lock_file(path).symlink_to(target)
    with pytest.raises(InvalidConfig, match=f"endpoint lock {lock_file(path)}: "):
        EndpointLock(path)
    assert holder(path) is None
    assert target.read_text() == "data"


def test_a_lock_file_that_cannot_be_made_is_told_in_one_line(path: Path) -> None:
    lock_file(path).mkdir()
    with pytest.raises(InvalidConfig, match="Is a directory"):
        EndpointLock(path)
    with pytest.raises(InvalidConfig, match="No such file or directory"):
        EndpointLock(path.parent / "missing" / "pool.sock")


# --- a group ----------------------------------------------------------------------------------------------------

OWN_GROUP = grp.getgrgid(os.getgid()).gr_name


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that others may pass, as pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="pt-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def test_a_folder_is_made_so_that_a_group_may_pass_and_nobody_may_look(open_folder: Path) -> None:
    folder = open_folder / "pool"
    old = os.umask(0o077)  # as in the unit
    try:
        prepare_folder(folder / "pool.sock", OWN_GROUP)
    finally:
        os.umask(old)
    assert mode(folder) == 0o711
    prepare_folder(folder / "pool.sock", OWN_GROUP)


@pytest.mark.parametrize("shut", ["pool", "."])
def test_a_folder_that_the_group_cannot_pass_is_told_and_let_be(open_folder: Path, shut: str) -> None:
    folder = open_folder / "pool"
    folder.mkdir(0o711)
    (open_folder / shut).chmod(0o700)
    with pytest.raises(InvalidConfig, match=f"the members of {OWN_GROUP} cannot pass {open_folder / shut};"):
        prepare_folder(folder / "pool.sock", OWN_GROUP)
    assert mode(open_folder / shut) == 0o700
    prepare_folder(folder / "pool.sock")


def test_the_sockets_are_the_groups_too(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch(0o600)
    admit(OWN_GROUP, tmp_path / "a", tmp_path / "b")
    assert {(mode(tmp_path / name), (tmp_path / name).stat().st_gid) for name in ("a", "b")} == {(0o660, os.getgid())}


def test_a_group_that_is_not_there_is_told(tmp_path: Path) -> None:
    for name in ("no-such-group", "a\0b"):
        with pytest.raises(InvalidConfig, match="this machine has no group"):
            admit(name, tmp_path / "a")


# --- whether somebody listens -----------------------------------------------------------------------------------


def test_who_listens_and_who_does_not(path: Path) -> None:
    assert obstacle(f"ipc://{path}") == "No such file or directory"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        assert obstacle(f"ipc://{path}") == "Connection refused"
        listener.listen(0)
        assert [obstacle(f"ipc://{path}") for _ in range(5)] == [""] * 5, "nor if it is too busy to answer"
    assert obstacle(f"ipc://{path}") == "Connection refused"
    assert obstacle(f"ipc://{path}{'x' * 120}") == "AF_UNIX path too long"
    assert obstacle("ipc:///a\0b") != ""

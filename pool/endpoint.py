"""Where a pool listens, where a client looks for it, and the lock that says whether one does.

An endpoint is given as an address, `ipc://…` or `tcp://…`, or as a pool's name; no name is the name "pool". The pool
NAME listens at `NAME.sock` in the folder of its user's pools. A client looks there first, then at the machine's service
of this name: `/run/pool-NAME/NAME.sock`, and `/run/pool/pool.sock` for the name "pool".

libzmq's `ipc` bind never refuses: it takes a live pool's path from under it. So who is alive is decided by a lock
file beside the socket, held with `flock` for life, with the pid inside. The kernel drops the lock with the process,
whatever killed it, so a socket without a held lock is stale and is taken over.
"""

import errno
import fcntl
import grp
import os
import re
import shlex
import socket
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pool.errors import InvalidConfig, PoolError
from pool.wire.texts import is_utf8

__all__ = [
    "CLUSTER_SCHEME",
    "DEFAULT_NAME",
    "ENDPOINT_VARIABLE",
    "NAME",
    "SERVICES",
    "EndpointInUse",
    "EndpointLock",
    "admit",
    "check_free",
    "default_endpoint",
    "endpoints",
    "group_id",
    "holder",
    "ipc_path",
    "obstacle",
    "prepare_folder",
    "service_endpoint",
    "service_folder",
    "why_silent",
]

# sun_path is 108 bytes with its final NUL; the workers' socket adds this to the clients' path.
WORKERS_SUFFIX = ".workers"
MEMORY_SUFFIX = ".memory"  # of the socket on which memory is lent
MAX_PATH_BYTES = 107
ENDPOINT_VARIABLE = "POOL_ENDPOINT"  # of a client's environment: its pool, where the caller names none
CLUSTER_SCHEME = "pool+ray://"  # of all pools of a Ray cluster; `ray://` is that of Ray's own client
DEFAULT_NAME = "pool"
NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
SERVICES = Path("/run")  # only root makes folders here


class EndpointInUse(PoolError):
    """A live pool holds the endpoint; the message names its pid."""


def endpoints(named: str | None, environ: Mapping[str, str], uid: int) -> tuple[str, ...]:
    """Where a client looks for its pool, in this order: at the address alone, or at the two places of a name.

    `named`: by the caller; None: $POOL_ENDPOINT, else the name "pool".
    """
    given = named if named is not None else environ.get(ENDPOINT_VARIABLE) or DEFAULT_NAME
    if NAME.fullmatch(given) is None:
        return (given,)
    return tuple(dict.fromkeys((default_endpoint(environ, uid, given), service_endpoint(given))))


def default_endpoint(environ: Mapping[str, str], uid: int, name: str = DEFAULT_NAME) -> str:
    """`NAME.sock` in the first of: $XDG_RUNTIME_DIR/pool, $RUNTIME_DIRECTORY, /run/user/UID/pool, /tmp/pool-UID."""
    if environ.get("XDG_RUNTIME_DIR"):
        folder = Path(environ["XDG_RUNTIME_DIR"], "pool")
    elif environ.get("RUNTIME_DIRECTORY"):
        folder = Path(environ["RUNTIME_DIRECTORY"].split(":")[0])
    elif Path(f"/run/user/{uid}").is_dir():
        folder = Path(f"/run/user/{uid}/pool")
    else:
        folder = Path(f"/tmp/pool-{uid}")
    return f"ipc://{folder}/{name}.sock"


def service_endpoint(name: str = DEFAULT_NAME) -> str:
    """Of the machine's service, for which systemd has made the folder."""
    return f"ipc://{SERVICES}/{service_folder(name)}/{name}.sock"


def service_folder(name: str) -> str:
    """Each service has one of its own: systemd removes it when the service ends."""
    return "pool" if name == DEFAULT_NAME else f"pool-{name}"


def obstacle(endpoint: str) -> str:
    """Why nobody can be reached at an `ipc://` endpoint now; "" where somebody listens."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)  # one that is asked more than it answers would have this wait
            code = probe.connect_ex(endpoint.removeprefix("ipc://"))
    except (OSError, ValueError) as error:
        return str(error)
    return "" if code in (0, errno.EAGAIN) else os.strerror(code)


def ipc_path(endpoint: str) -> Path:
    """The socket's path. Raises `InvalidConfig` where the endpoint is not a usable `ipc://` address."""
    if not endpoint.startswith("ipc:///") or endpoint.endswith("/") or "\0" in endpoint or not is_utf8(endpoint):
        raise InvalidConfig(
            f"endpoint {endpoint!r}: write ipc:// and an absolute path in UTF-8, such as ipc:///run/pool/pool.sock"
        )
    path = endpoint.removeprefix("ipc://")
    length = len(os.fsencode(path)) + len(WORKERS_SUFFIX)
    if length > MAX_PATH_BYTES:
        excess = length - MAX_PATH_BYTES
        raise InvalidConfig(f"endpoint {endpoint!r}: the path is {excess} bytes too long for a Unix socket")
    return Path(path)


def prepare_folder(path: Path, group: str | None = None) -> None:
    """Makes the socket's folder, 0700; refuses one that another user could have prepared for us.

    With a `group`, 0711: its sockets alone say who may connect. One that is there already must let others through, and
    so must those above.
    """
    folder = path.parent
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
            if group:
                folder.chmod(0o711)
        status = folder.stat(follow_symlinks=False)
    except OSError as error:
        raise InvalidConfig(f"endpoint folder {folder}: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidConfig(f"endpoint folder {folder}: not a folder (a link is refused too)")
    if status.st_uid not in (os.getuid(), 0):
        raise InvalidConfig(f"endpoint folder {folder}: belongs to uid {status.st_uid}, not to uid {os.getuid()}")
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        command = f"chmod 0700 {shlex.quote(str(folder))}"
        raise InvalidConfig(f"endpoint folder {folder}: other users may write into it; run {command}")
    shut = [each for each in (folder, *folder.parents) if group and not each.stat().st_mode & 0o011]
    if shut:
        right = "open it with chmod, or set [pool] endpoint to a socket in another folder"
        raise InvalidConfig(f"[pool] group: the members of {group} cannot pass {shut[-1]}; {right}")


def group_id(group: str) -> int:
    """Raises `InvalidConfig` where this machine has no such group."""
    try:
        return grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        right = "write the name of one, such as those that `id` shows"
        raise InvalidConfig(f"[pool] group: this machine has no group {group!r}; {right}") from None


def admit(group: str, *sockets: Path) -> None:
    """Opens the sockets to a group. REQUIRES that nobody else could have made them."""
    for path in sockets:
        try:
            os.chown(path, -1, group_id(group))
            path.chmod(0o660)
        except PermissionError:
            right = f"add it with `usermod -aG {group}`, and start the pool in a new session"
            raise InvalidConfig(f"[pool] group: the pool's user is no member of {group}; {right}") from None


class EndpointLock:
    """Held from before the socket is bound until after it is closed."""

    def __init__(self, socket_path: Path) -> None:
        """Takes the lock, or raises `EndpointInUse` within a quarter of a second.

        Raises `InvalidConfig` where the file cannot be made, or is a link.
        """
        self._path = _lock_path(socket_path)
        tries = 5  # `holder` borrows the lock for microseconds; who still has it after 0.2 s is a pool
        while True:
            self._fd = self._open()
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
                os.close(self._fd)
                tries -= 1
                if tries:
                    time.sleep(0.05)
                    continue
                raise EndpointInUse(_in_use(socket_path, pid or "unknown")) from None
            if self._is_current():
                break
            os.close(self._fd)  # the former holder removed the file between our open and our lock
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Removes the file while it is still held, so that no two pools hold two files of one name."""
        if self._is_current():  # else somebody removed ours, and the file of this name is another pool's
            self._path.unlink(missing_ok=True)
        os.close(self._fd)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise InvalidConfig(f"endpoint lock {self._path}: {error.strerror}") from None

    def is_displaced(self) -> bool:
        """Whether somebody removed our file and another pool has made one of this name: the socket is that pool's."""
        return self._path.exists() and not self._is_current()

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except FileNotFoundError:
            return False


def holder(socket_path: Path) -> int | None:
    """The pid of the pool that holds the endpoint now, or None when none does."""
    try:
        fd = os.open(_lock_path(socket_path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        # There is no asking without taking; `EndpointLock` tries again because of this instant.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0).decode(errors="replace").strip()
        return int(text) if text.isdigit() else None
    else:
        return None
    finally:
        os.close(fd)


def check_free(socket_path: Path) -> None:
    """Raises `EndpointInUse` where a pool is there now. Only the lock keeps the next one out."""
    if (pid := holder(socket_path)) is not None:
        raise EndpointInUse(_in_use(socket_path, pid))


def why_silent(endpoint: str) -> str:
    """Of a pool that lives on this machine and yet does not answer; "" where there is none."""
    pid = holder(Path(endpoint.removeprefix("ipc://"))) if endpoint.startswith("ipc:///") else None
    if pid is None:
        return ""
    if _is_stopped(pid):
        return f"its process (pid {pid}) is stopped; `kill -CONT {pid}` lets it go on"
    return f"its process (pid {pid}) lives; its log may say what it does"


def _is_stopped(pid: int) -> bool:
    """By SIGSTOP, Ctrl-Z or a debugger."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2][:1] in ("T", "t")
    except OSError:
        return False


def _in_use(socket_path: Path, pid: int | str) -> str:
    where = f"a pool is already running at ipc://{socket_path} (pid {pid})"
    return f"{where}; `pool stop` ends it, `pool start --name NAME` runs a second one"


def _lock_path(socket_path: Path) -> Path:
    return socket_path.with_name(socket_path.name + ".lock")

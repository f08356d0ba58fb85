"""Where a pool listens, where a client looks for it, and the lock that says whether one does.

libzmq's bind never refuses: it takes a live pool's path from under it. So a pool holds a file beside its socket by
`flock`, which the kernel drops with the process, whatever killed it.
"""

import fcntl
import grp
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pool.errors import InvalidConfig, PoolError, PoolUnreachable

SERVICE = "ipc:///run/pool/pool.sock"  # only root makes folders in /run
LONGEST_PATH = 107 - len(".link")  # of the 108 bytes of sun_path, the last is NUL; the link's socket has this suffix


def own(environ: Mapping[str, str], uid: int) -> str:
    """Where a user's pool listens: $POOL_ENDPOINT, else pool.sock in the first of the user's runtime folders."""
    if named := environ.get("POOL_ENDPOINT"):
        return named
    folder = f"/run/user/{uid}/pool" if os.path.isdir(f"/run/user/{uid}") else f"/tmp/pool-{uid}"
    if environ.get("RUNTIME_DIRECTORY"):  # of the machine's service
        folder = environ["RUNTIME_DIRECTORY"].split(":")[0]
    if environ.get("XDG_RUNTIME_DIR"):
        folder = f"{environ['XDG_RUNTIME_DIR']}/pool"
    return f"ipc://{folder}/pool.sock"


def sought(environ: Mapping[str, str], uid: int) -> list[str]:
    """Where a client looks: at $POOL_ENDPOINT alone, else for the user's own pool, then the machine's.

    Raises `PoolUnreachable` where another user may have put the socket of the user's own pool.
    """
    endpoint = own(environ, uid)
    if endpoint == environ.get("POOL_ENDPOINT"):
        return [endpoint]
    folder = ipc_path(endpoint).parent
    if objection := _objection(folder):
        raise PoolUnreachable(f"the folder {folder} {objection}; to use it all the same, set POOL_ENDPOINT={endpoint}")
    return [endpoint, SERVICE]


def ipc_path(endpoint: str) -> Path:
    """The socket's path. Raises `InvalidConfig` where the endpoint is not an address that can be used."""
    path = endpoint.removeprefix("ipc://")
    if not endpoint.startswith("ipc:///") or path.endswith("/") or not path.isprintable():
        raise InvalidConfig(f"{endpoint!r} is not an endpoint; write ipc:// and the absolute path of a socket")
    if (excess := len(os.fsencode(path)) - LONGEST_PATH) > 0:
        raise InvalidConfig(f"{endpoint!r} is {excess} bytes too long for a Unix socket; write a shorter path")
    return Path(path)


def prepare_folder(socket: Path, group: str | None) -> None:
    """Makes the socket's folder. Raises `InvalidConfig` where another user could have made it, or can write into it."""
    folder = socket.parent
    try:
        folder.mkdir(mode=0o711 if group else 0o700, parents=True, exist_ok=True)
        is_shut = group and not all(each.stat().st_mode & 0o011 for each in (folder, *folder.parents))
        objection = f"cannot be passed by members of {group}" if is_shut else _objection(folder)
    except OSError as error:
        objection = f"cannot be made: {error.strerror}"
    if objection:
        raise InvalidConfig(f"the folder {folder} {objection}; correct that, or set pool.endpoint to another one")


def _objection(folder: Path) -> str:
    with suppress(FileNotFoundError):
        status = folder.stat(follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022:
            return "is not a folder of your own into which nobody else can write, or is a link"
    return ""


def admit(group: str, *sockets: Path) -> None:
    """Opens sockets to a group. Raises `InvalidConfig` where there is none, or the pool's user is no member of it."""
    try:
        for path in sockets:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
            path.chmod(0o660)
    except (KeyError, PermissionError):
        raise InvalidConfig(f"pool.group: you are in no group {group!r}; write one that `id` shows") from None


def hold(socket: Path) -> None:
    """Takes the lock of an endpoint, before its socket is bound and until this process ends.

    Raises `PoolError` where a live pool holds it, `InvalidConfig` where it cannot be made.
    """
    path = socket.with_name(f"{socket.name}.lock")  # it stays: removing a file that another pool opens is a race
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(lock, 32, 0).decode(errors="replace").strip()
        os.close(lock)
        other = "end it by `pool stop`, or set another POOL_ENDPOINT"
        raise PoolError(f"a pool is already running at ipc://{socket} (pid {pid}); {other}") from None
    except OSError as error:
        raise InvalidConfig(f"the lock {path}: {error.strerror}; remove it") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)

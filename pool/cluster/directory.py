"""The list of a cluster's pools, which the keeper leaves with Ray's head and clients read there.

To read it, a program needs no node of Ray on its machine, and is none of Ray's jobs. The list is JSON: another release
of Python or Ray may read it.
"""

import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled
from ray.exceptions import RayError

from pool.errors import PoolUnreachable

__all__ = ["Directory", "Listed", "folder_id", "knock"]

NAMESPACE, KEY = b"pool", b"pools"
KNOCK_S = 5.0
ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Listed:
    """`name`: the same for all clients. `host`: the machine's address. `endpoint`: the Unix socket there.

    `folder`: which one the socket lies in, by `folder_id`. `remote`: for other machines; "" where there is none.
    """

    name: str
    host: str
    endpoint: str
    folder: str
    remote: str

    def seen_from_here(self) -> str:
        """Where a client on this machine reaches it; "": nowhere.

        A path says nothing of a machine, nor an address of a container. So the address must be one of this machine, and
        the folder at the path the pool's own. A socket that this user may not open is as one of another machine.
        """
        path = self.endpoint.removeprefix("ipc://")
        is_open = os.access(path if os.path.exists(path) else os.path.dirname(path), os.W_OK)  # it may be away
        is_near = is_open and folder_id(self.endpoint) == self.folder != "" and _is_mine(self.host)
        return self.endpoint if is_near else self.remote


class Directory:
    """Of one cluster. All methods raise `PoolUnreachable` where its head does not answer."""

    def __init__(self, address: str) -> None:
        """`address`: as of `Cluster`. Raises `PoolUnreachable`."""
        try:
            found = canonicalize_bootstrap_address_or_die(address)
            knock(found)
            self._head = GcsClient(address=found)
        except (RayError, OSError, RuntimeError, ValueError) as error:
            raise PoolUnreachable(f"no Ray cluster at {address}: {error}") from None

    def write(self, pools: Sequence[Listed]) -> None:
        text = json.dumps([asdict(each) for each in pools]).encode()
        try:
            self._head.internal_kv_put(KEY, text, True, namespace=NAMESPACE, timeout=ANSWER_S)
        except RayError as error:
            raise _silent(error) from None

    def remove(self) -> None:
        try:
            self._head.internal_kv_del(KEY, False, namespace=NAMESPACE, timeout=ANSWER_S)
        except RayError as error:
            raise _silent(error) from None

    def read(self) -> tuple[Listed, ...]:
        """Those that have served, in the order of their addresses. Raises `PoolUnreachable` where there is no list."""
        try:
            text = self._head.internal_kv_get(KEY, namespace=NAMESPACE, timeout=ANSWER_S)
        except RayError as error:
            raise _silent(error) from None
        if text is None:
            raise PoolUnreachable("this cluster has no pools; `pool start --ray` places them")
        try:
            return tuple(Listed(**each) for each in json.loads(text))
        except (ValueError, TypeError):
            raise PoolUnreachable("the list of this cluster's pools is of another release of this package") from None


def _silent(error: RayError) -> PoolUnreachable:
    return PoolUnreachable(f"the cluster's head does not answer: {error}")


def knock(address: str) -> None:
    """Ray looks for a head for minutes. Raises `OSError` where nobody listens."""
    host, _, port = address.rpartition(":")
    if host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), KNOCK_S).close()
        except (OverflowError, UnicodeError) as error:  # of the port, of the name
            raise OSError(str(error)) from None


def folder_id(endpoint: str) -> str:
    """Of the folder of a Unix socket, the same wherever this machine shows that folder. "": there is none."""
    with suppress(OSError):
        status = Path(endpoint.removeprefix("ipc://")).parent.stat()
        return f"{status.st_dev}:{status.st_ino}"
    return ""


def _is_mine(address: str) -> bool:
    """Whether this machine has this address."""
    try:
        (family, *_, place), *_ = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(place)
    except (OSError, UnicodeError):
        return False
    return True

"""Whom a client speaks to, and for how long it looks for it."""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from pool.client.trust import check_folder
from pool.endpoint import ENDPOINT_VARIABLE, MEMORY_SUFFIX, default_endpoint
from pool.errors import InvalidInput

__all__ = ["CONNECT_S", "RECONNECT_S", "Peer"]

CONNECT_S = 5.0
RECONNECT_S = 30.0  # a pool that is restarted listens within seconds, long before its models are loaded


_ENDPOINT = re.compile(r"ipc://.+|tcp://.+:\d+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Peer:
    """`connect_timeout_s`: for a pool that has not been there; `reconnect_timeout_s`: for one that was, 0.0 not at all.

    `is_default`: nobody has named the endpoint.
    """

    endpoint: str
    connect_timeout_s: float = CONNECT_S
    reconnect_timeout_s: float = RECONNECT_S
    is_default: bool = False

    @classmethod
    def of(cls, endpoint: str | None, connect_timeout: float, reconnect_timeout: float) -> "Peer":
        """Raises `ValueError` for what is no time to wait, `InvalidInput` for what is no endpoint."""
        for name, seconds in (("connect_timeout", connect_timeout), ("reconnect_timeout", reconnect_timeout)):
            if not 0 <= seconds < math.inf:
                raise ValueError(f"{name} is {seconds}; give seconds")
        named = endpoint if endpoint is not None else os.environ.get(ENDPOINT_VARIABLE) or None
        where = default_endpoint(os.environ, os.getuid()) if named is None else named
        if _ENDPOINT.fullmatch(where) is None:  # a `TypeError` for what is no text
            raise InvalidInput(f"{where!r:.200} is no endpoint; give ipc://PATH or tcp://HOST:PORT")
        return cls(where, connect_timeout, reconnect_timeout, is_default=named is None)

    @property
    def longest_timeout_s(self) -> float:
        return max(self.connect_timeout_s, self.reconnect_timeout_s)

    @property
    def memory_path(self) -> Path:
        """Of the socket where a pool on this machine lends memory."""
        return Path(self.endpoint.removeprefix("ipc://") + MEMORY_SUFFIX)

    def check(self) -> None:
        """Raises `PoolUnreachable` where what listens there must not be trusted with jobs."""
        if self.is_default:
            check_folder(self.endpoint)

"""Whom a client speaks to, and for how long it looks for it."""

import math
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pool.endpoint import DEFAULT_NAME, ENDPOINT_VARIABLE, MEMORY_SUFFIX, SERVICES, endpoints, obstacle
from pool.errors import InvalidInput, PoolUnreachable
from pool.keys import NAME, KeyFile, Keys, keys_for, named

__all__ = ["CONNECT_S", "RECONNECT_S", "Peer", "addresses", "check_folder"]

CONNECT_S = 5.0
RECONNECT_S = 30.0  # a pool that is restarted listens within seconds, long before its models are loaded


_ENDPOINT = re.compile(r"ipc://.+|tcp://.+:\d+", re.DOTALL)


def addresses(given: str | Sequence[str] | None) -> Sequence[str | None]:
    """The pools that a caller gives, each once: one, several, or None for what $POOL_ENDPOINT says, with commas.

    Raises `InvalidInput` for none, `TypeError` for what is no text.
    """
    named: Sequence[str | None] = [given] if given is None or isinstance(given, str) else [*given]
    if given is None and "," in (told := os.environ.get(ENDPOINT_VARIABLE, "")):
        named = [part.strip() for part in told.split(",") if part.strip()]
    if not all(isinstance(each, str | None) for each in named):
        raise TypeError(f"endpoints are {named!r:.80}; give texts")
    if not named:
        raise InvalidInput("no endpoint is given; give one at least, or None for the local pool")
    return list(dict.fromkeys(named))


@dataclass(slots=True)
class Peer:
    """`connect_timeout_s`: for a pool that has not been there; `reconnect_timeout_s`: for one that was, 0.0 not at all.

    `endpoint`: the pool's; while it is looked for, where it is looked for. `sought`: where it may be, if nobody has
    given its address, the user's own pool first. `keys`: of the connection, where it has any. `pause_s`: before it is
    looked for. `name`: by which all clients know it that have several; "": by its endpoint. `impersonates`: as whom its
    client comes; "": as itself. `given`: what the caller has written for it.
    """

    endpoint: str
    connect_timeout_s: float = CONNECT_S
    reconnect_timeout_s: float = RECONNECT_S
    sought: tuple[str, ...] = ()
    keys: Keys | None = None
    pause_s: float = 0.0
    name: str = ""
    impersonates: str = ""
    given: str = ""
    _obstacles: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        endpoint: str | None,
        connect_timeout: float,
        reconnect_timeout: float,
        key: KeyFile | None = None,
        server_key: KeyFile | None = None,
        impersonate: str | None = None,
    ) -> "Peer":
        """Raises `ValueError` for what is no time to wait, `InvalidInput` for what is no endpoint or no client's name.

        Raises `InvalidConfig` for keys that are wrong or missing.
        """
        for name, seconds in (("connect_timeout", connect_timeout), ("reconnect_timeout", reconnect_timeout)):
            if not 0 <= seconds < math.inf:
                raise ValueError(f"{name} is {seconds}; give seconds")
        if impersonate is not None and NAME.fullmatch(impersonate) is None:
            raise InvalidInput(f"impersonate is {impersonate!r:.80}; give the name of a client, as [[client]] has it")
        user = os.geteuid()
        given = endpoint if endpoint is not None else os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_NAME
        profile = named(given, os.environ, user)
        first, *others = endpoints(given if profile is None else profile.endpoint, os.environ, os.getuid())
        if _ENDPOINT.fullmatch(first) is None:
            raise InvalidInput(f"{first!r:.200} is no endpoint; give ipc://PATH, tcp://HOST:PORT or a pool's name")
        keys = keys_for(first, profile, key, server_key, os.environ, user)
        sought = (first, *others) if others else ()
        as_whom = impersonate or ""
        return cls(first, connect_timeout, reconnect_timeout, sought, keys, impersonates=as_whom, given=given)

    @property
    def key(self) -> str:
        return self.name or self.endpoint

    @property
    def label(self) -> str:
        """What people know it by."""
        return self.name or self.given or self.endpoint

    @property
    def is_near(self) -> bool:
        """Whether it is on this machine."""
        return self.endpoint.startswith("ipc://")

    @property
    def longest_timeout_s(self) -> float:
        return max(self.connect_timeout_s, self.reconnect_timeout_s)

    @property
    def memory_path(self) -> Path:
        """Of the socket where a pool on this machine lends memory."""
        return Path(self.endpoint.removeprefix("ipc://") + MEMORY_SUFFIX)

    def find(self) -> bool:
        """Whether there is an endpoint to connect to: of those where it may be, the first where somebody listens."""
        for each in self.sought:
            self._obstacles[each] = obstacle(each)
            if not self._obstacles[each]:
                self.endpoint = each
                return True
        return not self.sought

    @property
    def tried(self) -> str:
        """Where it was looked for, and why it was not found there."""
        found = [f"{each} ({why or 'no answer'})" for each, why in self._obstacles.items()]
        return " or ".join(found) or self.endpoint

    def check(self) -> None:
        """Raises `PoolUnreachable` where what listens there must not be trusted with jobs."""
        if self.sought:
            check_folder(Path(self.sought[0].removeprefix("ipc://")).parent, self.sought[0])
        if self.endpoint in self.sought[1:]:
            check_folder(SERVICES, self.endpoint)  # whoever may make folders there may make that of a service


def check_folder(folder: Path, endpoint: str) -> None:
    """Raises `PoolUnreachable` where another user could have put something into the folder of an `ipc://` endpoint.

    The default one may lie in /tmp, where anybody can make the folder first and would be sent our jobs. The pool's
    side holds the same: `pool.endpoint.prepare_folder`. Makes nothing; a folder that is missing is no danger.
    """
    try:
        status = folder.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PoolUnreachable(f"the default endpoint's folder {folder}: {error.strerror}") from None
    if reason := _objection(status):
        raise PoolUnreachable(
            f"the default endpoint's folder {folder} {reason}, so the pool there may be another user's;"
            f" to use it anyway, name it: Client({endpoint!r})"
        )


def _objection(status: os.stat_result) -> str:
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder (a link is refused too)"
    if status.st_uid not in (os.getuid(), 0):
        return f"belongs to uid {status.st_uid}, not to uid {os.getuid()}"
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        return "can be written to by other users"
    return ""

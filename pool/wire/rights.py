"""What a client may be allowed, beyond submitting jobs and asking, as `[[client]] may` has it."""

from typing import Literal, TypeAlias, get_args

__all__ = ["RIGHTS", "Right", "needed"]

Right: TypeAlias = Literal["load", "unload", "drain", "restart", "reload", "stop", "logs", "sessions", "impersonate"]
"""`logs`: to read the pool's log and crash reports, where a worker's output may be. `sessions`: to open sessions that
write. `impersonate`: to come as another client. The others are what the pool is asked to do."""
RIGHTS: frozenset[str] = frozenset(get_args(Right))


def needed(what: str, right: str) -> str:
    """What is said to who has not got it."""
    whom = "only at the local endpoint, from the pool's own user, or from a [[client]] that has the right"
    return f'{what} is accepted {whom} "{right}" in its `may`'

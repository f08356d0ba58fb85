"""The pool's gateway, as `Client.status` tells it."""

from dataclasses import dataclass

from pool.wire.codec import Record

__all__ = ["Gateway", "GatewayProcess"]


@dataclass(frozen=True, slots=True)
class GatewayProcess(Record):
    number: int
    pid: int | None
    incarnation: int
    state: str
    restarts: int
    reason: str


@dataclass(frozen=True, slots=True)
class Gateway(Record):
    """Where it answers, and the processes that share the socket."""

    url: str
    processes: tuple[GatewayProcess, ...]

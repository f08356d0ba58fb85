"""What a gateway takes from strangers."""

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """`bodies_bytes`: of all requests that are read or answered at one time. They and `connections` are bounds of all
    processes together.
    """

    head_bytes: int = 32 << 10
    body_bytes: int = 256 << 20
    json_bytes: int = 64 << 20
    bodies_bytes: int = 2 << 30
    connections: int = 1024
    read_timeout_s: float = 30.0
    slowest_bytes_s: int = 64 << 10
    """A body may take longer than `read_timeout_s` while it comes at this rate at least."""
    idle_timeout_s: float = 75.0
    write_timeout_s: float = 60.0
    """How long a client may leave an answer unread."""
    stop_timeout_s: float = 30.0
    """How long the requests that are answered may take when the gateway stops."""
    drain_bytes: int = 1 << 20
    drain_s: float = 2.0
    """What is read of a body that was refused, so that its sender reads the refusal."""

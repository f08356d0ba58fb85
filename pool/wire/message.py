"""What every message has: the number of its kind, which travels in the preamble."""

from typing import ClassVar, Protocol

__all__ = ["Message"]


class Message(Protocol):
    """A frozen dataclass; see `pool.wire.client_messages` and `pool.wire.worker_messages`."""

    kind: ClassVar[int]

"""The pool that is attacked: where it is reached, and what its configuration allows."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import zmq

from pool.wire.lent import LENT_BYTES
from pool.wire.records import Status

__all__ = [
    "CLIENT_MEMORY_BYTES",
    "CONFIG",
    "ENVIRON",
    "LARGE_BYTES",
    "MEMORY_BYTES",
    "MODELS",
    "QUEUE_BYTES",
    "QUEUE_JOBS",
    "Stage",
    "Target",
]

MIB = 1 << 20
QUEUE_JOBS = 600
QUEUE_BYTES = 48 * MIB
MEMORY_BYTES = 192 * MIB
CLIENT_MEMORY_BYTES = 32 * MIB
LARGE_BYTES = 2 * LENT_BYTES  # of a tensor that goes through memory that is lent

CONFIG = f"""
[queue]
max_jobs = {QUEUE_JOBS}
max_bytes = {QUEUE_BYTES}
[shared_memory]
max_bytes = {MEMORY_BYTES}
client_max_bytes = {CLIENT_MEMORY_BYTES}
"""
# "counter" is the honest client's alone. No signature that is named here kills or hangs its worker.
MODELS = """
[[model]]
name = "rows"
path = "stub:rows"
batching = "always"
max_batch = 65536
devices = "all"
[[model]]
name = "echo"
path = "stub:echo"
devices = "all"
[[model]]
name = "slow"
path = "stub:rows?run_ms=40"
batching = "always"
max_batch = 8
devices = "all"
[[model]]
name = "counter"
path = "stub:counter"
devices = "all"
[[model]]
name = "theirs"
path = "stub:counter"
devices = "all"
"""


# So that its allocator gives back what the pool has freed: else its memory stays what it was at its largest.
ENVIRON = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


@dataclass(frozen=True, slots=True)
class Target:
    """`local` and `remote`: endpoints of clients. `workers`: that of workers. `segments`: where memory is lent."""

    local: str
    remote: str
    workers: str
    shared_memory: str

    @property
    def path(self) -> str:
        """Of the Unix socket for clients."""
        return self.local.removeprefix("ipc://")

    @property
    def port(self) -> int:
        """At 127.0.0.1."""
        return int(self.remote.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a scene is played. `status`: what the pool says of itself. `crowding`: held by who does. `hoarding`: by who
    may be dropped, as only one can tell from the counts of `status`.

    `lent`: the sizes of segments in which somebody had jobs.
    """

    target: Target
    context: "zmq.Context[zmq.Socket[bytes]]"
    status: Callable[[], Status]
    hoarding: threading.Lock = field(default_factory=threading.Lock)
    crowding: threading.Lock = field(default_factory=threading.Lock)
    lent: list[int] = field(default_factory=list)

"""A process-per-GPU worker pool for TensorFlow inference: the client's side of it.

    from pool import Client

    with Client() as client:
        future = client.submit("digits", {"pixels": image})
        print(future.result()["label"])

Importing this package imports neither TensorFlow nor numpy; numpy comes with the first tensor.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pool import errors
    from pool.client.async_client import AsyncClient
    from pool.client.async_session import AsyncSession
    from pool.client.client import Client
    from pool.client.default import submit
    from pool.client.embedded import EmbeddedPool, start
    from pool.client.futures import JobFuture
    from pool.client.ragged import Ragged
    from pool.client.result import JobResult
    from pool.client.session import RemoteSession
    from pool.client.sparse import Sparse
    from pool.client.timeline import JobTimeline
    from pool.wire.records import Changes, CrashReport, JobHistory, Model, Placement, Recent, Slot, SlotHistory, Status
    from pool.wire.signatures import Context

__all__ = [
    "AsyncClient",
    "AsyncSession",
    "Changes",
    "Client",
    "Context",
    "CrashReport",
    "EmbeddedPool",
    "JobFuture",
    "JobHistory",
    "JobResult",
    "JobTimeline",
    "Model",
    "Placement",
    "Ragged",
    "Recent",
    "RemoteSession",
    "Slot",
    "SlotHistory",
    "Sparse",
    "Status",
    "errors",
    "start",
    "submit",
]

_HOMES = {
    "AsyncClient": "pool.client.async_client",
    "AsyncSession": "pool.client.async_session",
    "Changes": "pool.wire.records",
    "Client": "pool.client.client",
    "Context": "pool.wire.signatures",
    "CrashReport": "pool.wire.records",
    "EmbeddedPool": "pool.client.embedded",
    "JobFuture": "pool.client.futures",
    "JobHistory": "pool.wire.records",
    "JobResult": "pool.client.result",
    "JobTimeline": "pool.client.timeline",
    "Model": "pool.wire.records",
    "Placement": "pool.wire.records",
    "Ragged": "pool.client.ragged",
    "Recent": "pool.wire.records",
    "RemoteSession": "pool.client.session",
    "Slot": "pool.wire.records",
    "SlotHistory": "pool.wire.records",
    "Sparse": "pool.client.sparse",
    "Status": "pool.wire.records",
    "start": "pool.client.embedded",
    "submit": "pool.client.default",
}


def __getattr__(name: str) -> Any:
    # Lazily, because the workers import `pool.wire` and must not load a client's sockets and threads with it.
    if name == "errors":
        return import_module("pool.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pool' has no attribute {name!r}")

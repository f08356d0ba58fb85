"""`pool.submit`: one default client a process."""

import os
import threading
from collections.abc import Sequence

from pool.client.client import Client
from pool.client.futures import JobFuture

__all__ = ["submit"]

_lock = threading.Lock()
_client: Client | None = None


def submit(
    model: str,
    inputs: object,
    *,
    signature: str | None = None,
    outputs: Sequence[str] | None = None,
    timeout: float | None = None,
    priority: int = 0,
    device: str | int | None = None,
    version: str | int | None = None,
    block: bool = False,
) -> JobFuture:
    """`Client.submit` of this process's default client, which speaks to the local pool's default endpoint."""
    global _client  # one a process, made at the first use
    with _lock:
        if _client is None:
            _client = Client()
    return _client.submit(
        model,
        inputs,
        signature=signature,
        outputs=outputs,
        timeout=timeout,
        priority=priority,
        device=device,
        version=version,
        block=block,
    )


def _after_fork_in_child() -> None:
    global _lock, _client
    _lock = threading.Lock()  # another thread of the parent may have held it
    _client = None


os.register_at_fork(after_in_child=_after_fork_in_child)

"""`pool.submit`: one default client a process."""

import os
import threading
from typing import Unpack

from pool.client.client import Client
from pool.client.futures import JobFuture
from pool.client.request import JobOptions

__all__ = ["submit"]

_lock = threading.Lock()
_client: Client | None = None


def submit(model: str, inputs: object, *, block: bool = False, **options: Unpack[JobOptions]) -> JobFuture:
    """`Client.submit` of this process's default client, which speaks to the local pool's default endpoint."""
    global _client  # one a process, made at the first use
    with _lock:
        if _client is None:
            _client = Client()
    return _client.submit(model, inputs, block=block, **options)


def _after_fork_in_child() -> None:
    global _lock, _client
    _lock = threading.Lock()  # another thread of the parent may have held it
    _client = None


os.register_at_fork(after_in_child=_after_fork_in_child)

"""What callers use. In come models' names and arrays; out go jobs to the pool, and results.

`channel` speaks the wire over one ZeroMQ socket and is driven by a caller's thread (`client`), by an I/O thread
(`sender`) or by an event loop (`aio`). `connection` is the link, `arena` the shared memory, `knowledge` what is known
of models and of inputs that came before, `inputs` makes arrays of what callers give, `blocks` cuts and joins, `futures`
has results, `embedded` starts a pool. Nothing here imports TensorFlow, and every wait has an end.
"""

from pool.client.aio import AsyncClient
from pool.client.client import Client
from pool.client.embedded import EmbeddedPool, start
from pool.client.futures import JobFuture, Result, Timeline

__all__ = ["AsyncClient", "Client", "EmbeddedPool", "JobFuture", "Result", "Timeline", "start"]

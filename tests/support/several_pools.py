"""Several real pools at once, of stub models."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from support.pool_process import PoolProcess, stub_config

__all__ = ["MODEL", "models", "ready", "started"]

MODEL = '[[model]]\nname = "{}"\npath = "stub:{}"\n{}\n'


def models(which: int, extra: str = "") -> str:
    """`whose` gives the pool's number. `slow` takes a while, so that jobs are always under way."""
    whose = MODEL.format("whose", f"tell?n={which}", "max_batch = 1")
    return whose + MODEL.format("slow", "rows?run_ms=10", "max_batch = 1") + extra


def started(*configs: str, rest: str = "") -> AbstractContextManager[list[PoolProcess]]:
    """A pool for each of these `[[model]]` sections, all of which serve."""
    return ready(*(PoolProcess(stub_config(devices='["cpu"]', models=each, rest=rest)) for each in configs))


@contextlib.contextmanager
def ready(*pools: PoolProcess) -> Iterator[list[PoolProcess]]:
    """All of them serve."""
    try:
        for pool in pools:
            pool.start()
        for pool in pools:
            pool.await_ready()
        yield [*pools]
    finally:
        for pool in pools:
            pool.kill()

"""Reads the disk in a thread of its own: one on a server that is gone may not answer, and the loop never waits."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from pool.plan.world import World

__all__ = ["Reading"]

_T = TypeVar("_T")


class Reading(Generic[_T]):
    """Of what there is in one `world`. `result`, or `error`, is there once it `has_ended`."""

    def __init__(self, name: str, world: World, read: Callable[[], _T], ring: Callable[[], None]) -> None:
        """`ring` is called in the thread when that has ended. Raises `RuntimeError` where no thread can be had."""
        self.world = world
        self.began = time.monotonic()
        self.has_ended = False
        self.result: _T | None = None
        self.error: Exception | None = None
        self._read, self._ring = read, ring
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            self.result = self._read()
        except Exception as error:  # whatever is on the disk, the pool goes on
            self.error = error
        finally:
            self.has_ended = True
            self._ring()

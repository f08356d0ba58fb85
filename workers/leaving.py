"""The end of a worker's process."""

import os
import sys
from typing import NoReturn

from pool.wire.exits import Exit

__all__ = ["NotFree", "leave"]


class NotFree(Exception):
    """The process must not touch its GPUs. One line says why; `status` is how it ends."""

    def __init__(self, status: Exit, why: str) -> None:
        super().__init__(why)
        self.status = status


def leave(status: Exit) -> NoReturn:
    """From any thread, without Python's and TensorFlow's teardown, which can hang or crash and has nothing to save."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

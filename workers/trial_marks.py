"""What is being tried is written down, so that a trial that ends its process is not repeated for ever.

A file a model and kind in the state folder, locked by the worker that tries, and empty when that came to an end. A mark
in one that nobody has locked is of a worker that died.
"""

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.backend import ProcessUnusable

__all__ = ["ENOUGH", "EndedBefore", "TrialMarks"]

ENOUGH = 2  # one worker may have been killed for another reason
AGAIN_S = 86400.0


class EndedBefore(Exception):
    """Workers died while they tried this. One line."""


class TrialMarks:
    """Of one model, whose `about` says all that a trial depends on."""

    def __init__(self, folder: Path | None, about: str) -> None:
        """`folder` None: nothing is written, and nothing known."""
        self._folder = folder
        self._about = about

    @contextmanager
    def trying(self, kind: str) -> Iterator[None]:
        """Raises `EndedBefore` where `ENOUGH` workers died of it, the last within a day."""
        file = self._open(kind)
        if file is None:
            yield
            return
        try:
            marks = os.fstat(file).st_size
            age_s = time.time() - os.fstat(file).st_mtime
            if marks >= ENOUGH and age_s < AGAIN_S:
                raise EndedBefore(f"{marks} workers died while they tried it; it is tried again in a day")
            os.pwrite(file, b"x", marks)
            try:
                yield
            except ProcessUnusable:
                raise
            except Exception:
                os.ftruncate(file, 0)
                raise
            os.ftruncate(file, 0)
        finally:
            os.close(file)

    def _open(self, kind: str) -> int | None:
        """Locked by this process; None where it cannot be had, as while another worker tries the same."""
        if self._folder is None:
            return None
        name = hashlib.sha256(f"{kind}\0{self._about}".encode()).hexdigest()[:32]
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return None
        return file

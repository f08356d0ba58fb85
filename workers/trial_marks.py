"""What is being tried is written down, so that a trial that ends its process is not repeated for ever.

A file a model and kind in the state folder, locked by the worker that tries, and empty when that came to an end. A mark
in one that nobody has locked is of a worker that died. The mark is on the disk's books before anything is tried, so it
is there whatever the trial does to its process. Files of another form would have another folder.
"""

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.backend import ProcessUnusable

__all__ = ["ENOUGH", "EndedBefore", "TrialMarks", "Unmarked", "folder_of"]

ENOUGH = 2  # one worker may have been killed for another reason
AGAIN_S = 86400.0


class EndedBefore(Exception):
    """Workers died while they tried this. One line."""

    def __init__(self, deaths: int) -> None:
        super().__init__(f"{deaths} workers died while they tried it; the next try is in a day")
        self.deaths = deaths


class Unmarked(Exception):
    """It cannot be written down now: another worker tries the same, or there is no place for it."""


def folder_of(cache: str) -> Path | None:
    """Beside the folder that `ModelSettings.cache` names; None where that is "", as there is no state folder."""
    return Path(cache).parent / "trials" if cache else None


class TrialMarks:
    """Of one model, whose `about` says all that a trial depends on."""

    def __init__(self, folder: Path | None, about: str) -> None:
        """`folder` None: nothing is written, and nothing known."""
        self._folder = folder
        self._about = about

    @property
    def are_kept(self) -> bool:
        return self._folder is not None

    @contextmanager
    def trying(self, kind: str, one_of_many: bool = False) -> Iterator[None]:
        """Raises `EndedBefore` where `ENOUGH` workers died of it, the last within a day.

        Where it cannot be written down, it is tried without. `one_of_many`: not so, but `Unmarked` is raised; and that
        one of them ends well says nothing of the others, so deaths within a day are remembered.
        """
        file = self._open(kind)
        if file is None:
            if one_of_many:
                raise Unmarked
            yield
            return
        try:
            before = os.fstat(file)
            is_old = time.time() - before.st_mtime >= AGAIN_S
            if before.st_size >= ENOUGH and not is_old:
                raise EndedBefore(before.st_size)
            left = before.st_size if one_of_many and not is_old else 0
            try:
                os.pwrite(file, b"x", before.st_size)
            except OSError:
                if one_of_many:
                    raise Unmarked from None
            try:
                yield
            except ProcessUnusable:
                raise
            except Exception:
                _leave(file, left, before)
                raise
            _leave(file, left, before)
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


def _leave(file: int, marks: int, before: os.stat_result) -> None:
    """It came to an end. The marks of others keep their time."""
    with contextlib.suppress(OSError):
        os.ftruncate(file, marks)
        if marks:
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

"""A folder of files of one kind that outlive the pool: private, bounded in number and bytes, the oldest go first.

The pool's loop never waits for the disk: a thread writes the files, in the order in which it was told of them, so what
is newer stays. A file is there whole or not at all.
"""

import contextlib
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pool.kept.format import NewerFiles
from pool.wire.sizes import exceeds

__all__ = ["Buffer", "KeptFiles", "write_whole"]

UNFINISHED = ".part"
STALE_S = 3600.0  # an unfinished file of this age is a killed pool's
MOST_WAITING = 16  # for a disk that does not answer; each holds its file's bytes

Buffer = bytes | memoryview

log = logging.getLogger("pool.kept.files")


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    data: Sequence[Buffer]
    done: Callable[[Path, str | None], None]


class KeptFiles:
    """Nothing here blocks the caller but `close`, and nothing raises."""

    def __init__(
        self, folder: Path | None, suffix: str, keep: int, max_bytes: int, known: int, section: str = ""
    ) -> None:
        """At most `keep` files of `max_bytes` together have the suffix; others in the folder are let be.

        So are those of a format above `known`, see `pool.kept.format`. `section`: of the settings, with the bounds.
        """
        self.newer = NewerFiles(known)
        self.most_files = keep
        self._folder = folder
        self._suffix = suffix
        self._section = section
        self._max_bytes = max_bytes
        self._guard = threading.Lock()
        self._files: deque[_File] = deque()  # to be written; the first one is being written
        self._writer: threading.Thread | None = None  # while there are any

    @property
    def folder(self) -> Path | None:
        """Where the files are; None where none is kept."""
        return self._folder if self.most_files else None

    def adopt(self, keep: int, max_bytes: int) -> None:
        """Other bounds, which the next file is to fit."""
        self.most_files, self._max_bytes = keep, max_bytes

    def write(self, name: str, data: Sequence[Buffer], done: Callable[[Path, str | None], None]) -> Path | None:
        """Writes the data, which is not copied, to a file of this name and the suffix: its path, if it is to be there.

        `done` is told once, in whatever thread: the path, and why it was not written if it was not.
        """
        file = _File((self._folder or Path()) / f"{name}{self._suffix}", data, done)
        refused = self._unfit(sum(map(len, data))) or self._accept(file)
        if refused is None:
            return file.path
        done(file.path, refused)
        return None

    def close(self, timeout_s: float) -> None:
        """Waits so long at most for what is being written."""
        with self._guard:
            writer = self._writer
        if writer is not None:
            writer.join(timeout_s)

    def _unfit(self, size_bytes: int) -> str | None:
        """Why there is no place for a file of this size, whatever else is there."""
        if self._folder is None:
            return "there is no state folder; set [pool] state"
        if size_bytes > self._max_bytes:
            return f"the file is too large: {exceeds(size_bytes, f'[{self._section}] max_bytes', self._max_bytes)}"
        return None

    def _accept(self, file: _File) -> str | None:
        """Why it will not be written."""
        with self._guard:
            if len(self._files) >= MOST_WAITING:
                return f"the disk has not yet written the {len(self._files)} before it"
            if self._writer is None:
                writer = threading.Thread(target=self._write_all, name=file.path.parent.name, daemon=True)
                try:
                    writer.start()
                except RuntimeError as error:
                    return str(error)
                self._writer = writer
            self._files.append(file)
            return None

    def _write_all(self) -> None:
        while True:
            with self._guard:
                if not self._files:
                    self._writer = None
                    return
                file = self._files[0]
            try:
                file.done(file.path, self._write(file))
            except Exception:  # the others are to be written nevertheless
                log.exception("the callback after a written file raised")
            with self._guard:
                self._files.popleft()

    def _write(self, file: _File) -> str | None:
        """Why it was not written."""
        folder = file.path.parent
        try:
            _prepare(folder)
            self._make_room(folder, sum(map(len, file.data)))
            write_whole(file.path, file.data)
        except Exception as error:  # whatever it is, somebody waits for `done`
            reason = error.strerror if isinstance(error, OSError) else None
            return f"{folder}: {reason or error}"
        return None

    def _make_room(self, folder: Path, size_bytes: int) -> None:
        """Removes the oldest files, and what a killed pool has left."""
        kept: list[tuple[float, str, int]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another pool of the same user has removed it
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(about.st_mode):
                        continue
                    if entry.name.endswith(self._suffix):
                        kept.append((about.st_mtime, entry.name, about.st_size))
                    elif entry.name.endswith(UNFINISHED) and time.time() - about.st_mtime > STALE_S:
                        os.unlink(entry.path)
        left = size_bytes + sum(size for *_, size in kept)
        if len(kept) < self.most_files and left <= self._max_bytes:
            return
        kept = sorted((each for each in kept if not self.newer.has(folder / each[1])), reverse=True)
        left = size_bytes + sum(size for *_, size in kept)
        while kept and (len(kept) >= self.most_files or left > self._max_bytes):
            _, name, size = kept.pop()
            left -= size
            (folder / name).unlink(missing_ok=True)


def _prepare(folder: Path) -> None:
    """Makes the folder, this user's alone; raises OSError for one that another user has prepared."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(about.st_mode):
        raise OSError("not a folder (a link is refused too)")
    if about.st_uid != os.geteuid():
        raise OSError(f"belongs to uid {about.st_uid}, not to uid {os.geteuid()}")
    if about.st_mode & 0o077:
        folder.chmod(0o700)


def write_whole(path: Path, data: Sequence[Buffer], mode: int = 0o600) -> None:
    """The whole file under its name, or none; raises OSError."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    # Made anew: what stands there would have its own mode, or be a link.
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # whatever the umask
            for piece in data:
                file.write(piece)
            file.flush()
            os.fsync(descriptor)
        unfinished.rename(path)
    except BaseException:  # Ctrl-C too
        unfinished.unlink(missing_ok=True)
        raise

"""A folder of models that were converted, each once, by the content of the file that it was made of.

Several workers may want the same one at the same time: the first converts, the others wait for its lock, which ends
with its process. A folder has its name only when it is whole.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["Conversions", "Convert"]

Convert = Callable[[Path, Path], None]
"""Makes a folder of a file. The folder exists, and is empty."""

_UNFINISHED = ".part"
_LOCK = ".lock"
_STALE_S = 30 * 86400.0  # what no worker has asked for since; loading it again costs one conversion
_DEAD_S = 7200.0  # what nobody works at any more
_WAIT_S = 3600.0
_LOOK_S = 0.05


class Conversions:
    """In a folder that is this user's alone: who could write there could have any code run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, path: Path, convert: Convert) -> Path:
        """The folder that `convert` made of a file with this content, now or before.

        Waits for another process that makes it. Raises what `convert` raises, and `OSError`.
        """
        _prepare(self._folder)
        made = self._folder / f"{_digest(path)}-keras{_version('keras')}-tensorflow{_version('tensorflow')}"
        if not _touch(made):
            with _locked(made.with_name(made.name + _LOCK)):
                if not _touch(made):
                    self._make(path, made, convert)
            self._tidy_up()
        return made

    def _make(self, path: Path, made: Path, convert: Convert) -> None:
        unfinished = Path(tempfile.mkdtemp(suffix=_UNFINISHED, dir=self._folder))
        try:
            convert(path, unfinished)
            try:
                unfinished.rename(made)
            except OSError:
                if not _touch(made):  # else another one was quicker, whom no lock could hold up
                    raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _tidy_up(self) -> None:
        """Removes what is of no use to anybody any more; what cannot be removed stays."""
        now = time.time()
        for entry in self._folder.iterdir():
            with contextlib.suppress(OSError):
                age_s = now - entry.stat(follow_symlinks=False).st_mtime
                unfinished = entry.name.endswith(_UNFINISHED)
                if entry.name.endswith(_LOCK) or age_s < (_DEAD_S if unfinished else _STALE_S):
                    continue
                # Under another name first: who asks for it now must not find the half of it.
                shutil.rmtree(entry if unfinished else entry.rename(f"{entry}{_UNFINISHED}"), ignore_errors=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # of another name, such as tensorflow-cpu
        return ""


def _touch(folder: Path) -> bool:
    """Whether it is there; if so it was in use now."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock, or goes on without it after an hour, or where the disk has no locks."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    ends = time.monotonic() + _WAIT_S
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > ends:
                    break
                time.sleep(_LOOK_S)
            except OSError:
                break
        yield
    finally:
        os.close(descriptor)


def _prepare(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(about.st_mode):
        raise OSError(f"{folder} is not a folder (a link is refused too)")
    if about.st_uid != os.geteuid():
        raise OSError(f"{folder} belongs to uid {about.st_uid}, not to uid {os.geteuid()}")
    if about.st_mode & 0o077:
        folder.chmod(0o700)

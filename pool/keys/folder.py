"""The public keys that may enter: a file each, `NAME.key`, in one folder.

A key is looked up when its connection begins, and its file is looked at with each message: who takes the file away ends
the visit. Nothing else is remembered, so no reload is needed.
"""

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pool.errors import InvalidConfig
from pool.keys.files import NAME, PUBLIC, check_own, read_public

__all__ = ["Entrant", "KeyFolder"]

MOST_KEYS = 10_000
LOOK_S = 0.5  # a stranger has the folder read no more often, unless a file has come or gone there

Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Entrant:
    """A key that may enter. `stamp`: of its file, when it was read."""

    name: str
    public: str
    path: str
    stamp: Stamp

    @property
    def may_stay(self) -> bool:
        """Whether its file is still the one that was read."""
        return _stamp(self.path) == self.stamp


class KeyFolder:
    """Used from the pool's loop. A lookup of a key that is there costs a look at its file."""

    def __init__(self, path: Path, user: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`user`: who, besides root, may own the folder and its files."""
        self._path = path
        self._user = user
        self._clock = clock
        self._entrants: dict[str, Entrant] = {}  # by their public keys
        self._looked = -LOOK_S
        self._stamp: Stamp | None = None  # of the folder, just before it was read
        self.unfit: dict[str, str] = {}
        """Files that let nobody in, and why."""

    def check(self) -> None:
        """Raises `InvalidConfig` where others could put their keys into it."""
        try:
            about = self._path.stat()
        except OSError as error:
            right = "make it with `mkdir -m 0700`, and put the NAME.key of who may enter into it"
            raise InvalidConfig(f"{self._path} cannot be read: {error.strerror}; {right}") from None
        if not stat.S_ISDIR(about.st_mode):
            raise InvalidConfig(f"{self._path} is not a folder; write the path of a folder of public keys")
        check_own(self._path, about, self._user, 0o022)

    def find(self, public: str) -> Entrant | None:
        """Who has this public key, if it may enter now."""
        entrant = self._entrants.get(public)
        if entrant is not None and entrant.may_stay:
            return entrant
        if self._clock() - self._looked >= LOOK_S or _stamp(self._path) != self._stamp:
            self.read()
            return self._entrants.get(public)
        return None

    def read(self) -> list[Entrant]:
        """Everybody who may enter, by name. A file that is not fit for it lets nobody in, and keeps nobody else out."""
        self._looked, self._stamp = self._clock(), _stamp(self._path)
        former = {entrant.path: entrant for entrant in self._entrants.values()}
        self._entrants, self.unfit = {}, {}
        try:
            self.check()
            with os.scandir(self._path) as entries:
                files = sorted(entry.path for entry in entries if entry.name.endswith(PUBLIC))
        except InvalidConfig as error:
            self.unfit[str(self._path)] = str(error)
            files = []
        except OSError as error:
            self.unfit[str(self._path)] = f"{self._path}: {error.strerror}"
            files = []
        for path in files[:MOST_KEYS]:
            stamp = _stamp(path)
            known = former.get(path)
            try:
                entrant = known if known is not None and known.stamp == stamp else self._entrant(path, stamp)
            except InvalidConfig as error:
                self.unfit[path] = str(error)
            else:
                self._entrants.setdefault(entrant.public, entrant)
        return list(self._entrants.values())

    def _entrant(self, path: str, stamp: Stamp | None) -> Entrant:
        name = os.path.basename(path).removesuffix(PUBLIC)
        if NAME.fullmatch(name) is None:
            raise InvalidConfig(f"{path!r}: {name!r} is not a name; rename the file")
        public = read_public(Path(path), self._user)
        if stamp is None:
            raise InvalidConfig(f"{path} is gone")
        return Entrant(name, public, path, stamp)


def _stamp(path: str | Path) -> Stamp | None:
    try:
        about = os.stat(path)
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size

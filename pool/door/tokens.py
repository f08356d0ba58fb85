"""Bearer tokens: a private file has the name and the SHA-256 digest of each, so whoever reads it learns no token."""

import hashlib
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

from pool.errors import InvalidConfig

PREFIX = "pool_"  # by which scanners of secrets know one
LINE = re.compile(r"([\w.@-]{1,64}) ([0-9a-f]{64})")
LOOK_S = 1.0
MOST_BYTES = 1 << 20


def digest(token: str) -> str:
    """Of a random token it tells nothing, nor does the time that it takes to look it up."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def new(path: Path, name: str) -> str:
    """Makes a token and keeps its digest in the file, in the place of an older one of the name.

    Raises `InvalidConfig` for a name or a file that is none.
    """
    token = PREFIX + secrets.token_urlsafe(32)
    if not LINE.fullmatch(f"{name} {digest(token)}"):
        raise InvalidConfig(f"{name!r:.80} is no name of a token; write letters, digits, and any of _ . @ -")
    known = {each: kept for kept, each in read(path).items()} if path.exists() else {}
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{each} {kept}\n" for each, kept in {**known, name: digest(token)}.items())
    part.rename(path)
    return token


def read(path: Path) -> dict[str, str]:
    """Names by digest. Raises `InvalidConfig` for a file that others could have written, or that is none of tokens."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, os.getuid()) or status.st_mode & 0o022:
                raise InvalidConfig(f"{path} must be a file of your own into which nobody else can write")
            lines = [line.strip() for line in file.read(MOST_BYTES).splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{path} cannot be read ({error}); `pool token new NAME` makes it") from None
    found = [LINE.fullmatch(line) for line in lines]
    if not all(found):
        raise InvalidConfig(f"{path} has a line that is no token's name and digest; `pool token new NAME` writes them")
    return {match[2]: match[1] for match in found if match}


class Tokens:
    """Those of a file, which is read again each second. A file that cannot be read any more lets nobody in."""

    def __init__(self, path: str) -> None:
        """Raises `InvalidConfig`."""
        self._path = Path(path)
        self._looked_at, self._known = time.monotonic(), read(self._path)

    def knows(self, authorization: str) -> bool:
        """Whether the token of an Authorization header is one of them."""
        if time.monotonic() - self._looked_at > LOOK_S:
            self._looked_at, self._known = time.monotonic(), {}
            with suppress(InvalidConfig):
                self._known = read(self._path)
        kind, _, token = authorization.partition(" ")
        return kind.lower() == "bearer" and digest(token.strip()) in self._known

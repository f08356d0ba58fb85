"""The file of tokens by which a gateway tells its clients apart: a line each, a name and the SHA-256 of the token.

    alice 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08

A token has 256 random bits, so its plain digest gives nothing away. A name may have several lines: the next token is
there before the former one goes. Empty lines, and those that begin with "#", say nothing.
"""

import hashlib
import os
import re
import secrets
import stat
from pathlib import Path

from pool.keys import NAME
from pool.wire.gateway import Token

__all__ = ["WrongTokens", "add_token", "read_tokens"]

LARGEST_BYTES = 1 << 20  # some ten thousand tokens
TOKEN_BYTES = 32
_LINE = re.compile(rf"({NAME.pattern})\s+([0-9a-f]{{64}})", re.ASCII)


class WrongTokens(Exception):
    """The file is not to be trusted, or is none; the text says what would be right."""


def read_tokens(path: Path, user: int | None = None) -> tuple[Token, ...]:
    """Raises `WrongTokens`, also for a file that others could have read or written.

    `user`: the id of its owner, who may be root as well; None: this process's.
    """
    try:
        # A pipe of this name must not hold up who opens it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise WrongTokens(f"there is no file {path}; `pool gateway token NAME` makes it") from None
    except OSError as error:
        raise WrongTokens(f"{path} cannot be read: {error.strerror}; make it a file of the pool's user") from None
    try:
        _check(path, os.fstat(descriptor), os.geteuid() if user is None else user)
        with open(descriptor, "rb", closefd=False) as file:
            text = file.read(LARGEST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(text) > LARGEST_BYTES:
        raise WrongTokens(f"{path} has more than {LARGEST_BYTES} bytes; remove the tokens that nobody uses")
    found: list[Token] = []
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:  # it may be a token itself, so it is not quoted
            raise WrongTokens(f"{path}: line {number} is not a name and 64 hexadecimal digits; remove the line")
        token = Token(match[1], bytes.fromhex(match[2]))
        if other := next((each for each in found if each.digest == token.digest), None):
            raise WrongTokens(f"{path}: line {number} has the token of {other.name} again; remove one of the two lines")
        found.append(token)
    return tuple(found)


def add_token(path: Path, name: str) -> str:
    """Makes a token for a client and writes its digest at the end of the file, which is made where there is none, 0600.

    Returns the token, which is nowhere else. Raises `WrongTokens` as `read_tokens` does, and `OSError`.
    """
    if NAME.fullmatch(name) is None:
        raise WrongTokens(f"{name!r} is not a name; write letters, digits, '_', '.' and '-', 64 at most")
    if path.exists():
        read_tokens(path)
    token = secrets.token_urlsafe(TOKEN_BYTES)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    with open(descriptor, "r+b", buffering=0) as file:
        _check(path, os.fstat(descriptor), os.geteuid())
        size = os.fstat(descriptor).st_size
        joint = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
        file.write(joint + f"{name} {hashlib.sha256(token.encode()).hexdigest()}\n".encode())
        os.fsync(descriptor)
    return token


def _check(path: Path, about: os.stat_result, user: int) -> None:
    if not stat.S_ISREG(about.st_mode):
        raise WrongTokens(f"{path} is not a file; give the path of a file with mode 0600")
    if about.st_uid not in (user, 0):
        raise WrongTokens(f"{path} belongs to uid {about.st_uid}; give a file that belongs to uid {user} or to root")
    if about.st_mode & 0o077:
        raise WrongTokens(f"{path} has mode {stat.S_IMODE(about.st_mode):04o}, so others can open it; run chmod 0600")

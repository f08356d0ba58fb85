"""The two files of a key, in ZeroMQ's own form: `NAME.key` is for everybody, `NAME.key_secret` for its owner alone.

    curve
        public-key = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
        secret-key = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"

A key of CURVE has 32 bytes, and is written as 40 characters of Z85. pyzmq's helper would make the secret file 0644.
"""

import contextlib
import os
import re
import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path

from pool.errors import InvalidConfig

__all__ = ["KEY_TEXT", "NAME", "PUBLIC", "SECRET", "Pair", "check_own", "make_pair", "read_pair", "read_public"]

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)  # of a client: its keys, tokens and [[client]] say it
PUBLIC, SECRET = ".key", ".key_secret"
KEY_TEXT = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}", re.ASCII)
LARGEST_BYTES = 4096
_LINE = re.compile(rf'^\s*(public|secret)-key\s*=\s*"({KEY_TEXT.pattern})"\s*$', re.ASCII | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both halves, as 40 characters each. Its text does not show the secret one."""

    public: str
    secret: str = field(repr=False)


def make_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Writes the files of a new key, 0644 and 0600, into the folder, which is made 0700 where there is none.

    Returns their paths, the public one first. Raises `InvalidConfig` for what is no name or is there, and `OSError`.
    """
    import zmq  # a client that only reads keys has it with its first connection

    if NAME.fullmatch(name) is None or name.startswith("."):
        right = "write letters, digits, '_', '.' and '-', 64 at most, and no '.' first"
        raise InvalidConfig(f"{name!r} is not a name of a key; {right}")
    public, secret = (folder / f"{name}{suffix}" for suffix in (PUBLIC, SECRET))
    for path in (public, secret):
        if os.path.lexists(path):
            raise InvalidConfig(f"{path} is there already, and who uses it would be locked out; choose another name")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    one, other = (half.decode() for half in zmq.curve_keypair())
    _write(secret, f'curve\n    public-key = "{one}"\n    secret-key = "{other}"\n', 0o600)
    try:
        _write(public, f'curve\n    public-key = "{one}"\n', 0o644)
    except BaseException:
        secret.unlink()  # a key is there with both files or with none
        raise
    return public, secret


def read_public(path: Path, user: int) -> str:
    """The public half in either file. Raises `InvalidConfig` for a file that others could have written."""
    text = _read(path, user, writable=0o022)
    if (found := _halves(text).get("public")) is None:
        raise InvalidConfig(f'{path} has no line public-key = "…" with 40 characters; `pool keys new NAME` writes one')
    return found


def read_pair(path: Path, user: int) -> Pair:
    """Of a secret file. Raises `InvalidConfig` for one that others could have read."""
    halves = _halves(_read(path, user, writable=0o077))
    if len(halves) < 2:
        right = f"write the path of the file NAME{SECRET} that `pool keys new NAME` made"
        raise InvalidConfig(f"{path} has no secret key; {right}")
    return Pair(halves["public"], halves["secret"])


def check_own(path: Path, about: os.stat_result, user: int, writable: int) -> None:
    """Raises `InvalidConfig` where others own it, or its mode has a bit of `writable`."""
    if about.st_uid not in (user, 0):
        raise InvalidConfig(f"{path} belongs to uid {about.st_uid}; make it a file of uid {user} or of root")
    if about.st_mode & writable:
        doing, mode = ("open", "0600") if writable & 0o044 else ("write", "go-w")
        command = f"chmod {mode} {shlex.quote(str(path))}"
        raise InvalidConfig(
            f"{path} has mode {stat.S_IMODE(about.st_mode):04o}, so others can {doing} it; run {command}"
        )


def _halves(text: str) -> dict[str, str]:
    return {match[1]: match[2] for match in _LINE.finditer(text)}


def _read(path: Path, user: int, writable: int) -> str:
    try:
        # A pipe of this name must not hold up who opens it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST_BYTES:
                raise InvalidConfig(f"{path} is not a key file; `pool keys new NAME` writes one")
            check_own(path, about, user, writable)
            return os.read(descriptor, LARGEST_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)
    except InvalidConfig:  # which is a `ValueError`, too
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidConfig(f"{path} cannot be read: {why}; write the path of a key file") from None


def _write(path: Path, text: str, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # whatever the umask is
            file.write(text.encode())
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise

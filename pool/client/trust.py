"""Whether the default endpoint can only be this user's pool."""

import os
import stat
from pathlib import Path

from pool.errors import PoolUnreachable

__all__ = ["check_folder"]


def check_folder(folder: Path, endpoint: str) -> None:
    """Raises `PoolUnreachable` where another user could have put something into the folder of an `ipc://` endpoint.

    The default one may lie in /tmp, where anybody can make the folder first and would be sent our jobs. The pool's
    side holds the same: `pool.endpoint.prepare_folder`. Makes nothing; a folder that is missing is no danger.
    """
    try:
        status = folder.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PoolUnreachable(f"the default endpoint's folder {folder}: {error.strerror}") from None
    if reason := _objection(status):
        raise PoolUnreachable(
            f"the default endpoint's folder {folder} {reason}, so the pool there may be another user's;"
            f" to use it anyway, name it: Client({endpoint!r})"
        )


def _objection(status: os.stat_result) -> str:
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder (a link is refused too)"
    if status.st_uid not in (os.getuid(), 0):
        return f"belongs to uid {status.st_uid}, not to uid {os.getuid()}"
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        return "can be written to by other users"
    return ""

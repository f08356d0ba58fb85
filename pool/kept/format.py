"""What the pool keeps between its starts, and how a file says which release can read it.

    folder        a file begins with                 its number                             what has a higher number
    quarantine/   TFWPJOB and a byte                 pool.kept.quarantine.FORMAT                 is let be, and told of
    crash_reports/ {"format": N, …, of a death       pool.recorder.shelf.FORMAT             than NEWEST is let be, too
                  … or of the pool's own fault       pool.recorder.fault_report.FORMAT
    footprints/   {"format": N, …                    pool.plan.footprints.FORMAT                 is let be, and told of
    trials/       nothing: its size says it all      the folder's name                      has another folder
    converted/    a SavedModel, TensorFlow's own     the versions in its name               has another name

None of these numbers is that of the wire protocol. A change of the wire changes no file: what is kept has a schema of
its own, and who changes that raises its number, and still reads the former ones. The files of version 1 of the pool are
in `tests/integration/version_1`.
"""

import logging
import os
import re
import stat
from pathlib import Path

from pool.logs import about

__all__ = ["NewerFiles", "format_of", "read_file"]

log = logging.getLogger("pool")

HEAD_BYTES = 64
_HEAD = re.compile(rb'\s*\{\s*"format":\s*(?P<number>\d{1,9})\b|TFWPJOB(?P<byte>.)', re.DOTALL)


def format_of(head: bytes) -> int | None:
    """By the first `HEAD_BYTES` of a file; None for what is no kept file."""
    found = _HEAD.match(head)
    if found is None:
        return None
    return int(found["number"]) if found["number"] is not None else found["byte"][0]


class NewerFiles:
    """Files of one kind that a newer release wrote: they are neither read nor removed. The first one is told of."""

    def __init__(self, known: int) -> None:
        """`known`: the newest format that this release reads."""
        self._known = known
        self._told = False

    def has(self, path: Path) -> bool:
        """Whether the file is one of them. Never raises, and waits for no pipe."""
        try:
            number = format_of(read_file(path, HEAD_BYTES) or b"")
        except OSError:
            return False
        if number is None or number <= self._known:
            return False
        if not self._told:
            self._told = True
            text = "%s has format %d of a newer release; the pool leaves it and others like it alone"
            log.warning(text, path, number, extra=about("newer_file", path=str(path), format=number))
        return True


def read_file(path: Path, most_bytes: int = -1) -> bytes | None:
    """What the file begins with; None for a pipe, a device or the like, which it never waits for.

    Raises OSError, and ValueError for a path that can be none.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        return file.read(most_bytes) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None

"""Where the log of this process goes, and until when."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pool.logs import lines
from pool.logs.entry import Entry, entry_of
from pool.logs.file import BoundedFile, Stream
from pool.logs.journal import SOCKET, Journal, is_journal
from pool.logs.writer import Writer

__all__ = ["to_file", "to_stderr"]

FLUSH_S = 1.0  # how long the end of the log waits for whoever reads


@contextlib.contextmanager
def to_stderr(
    as_json: bool, verbose: bool, environ: Mapping[str, str], journal_socket: Path = SOCKET
) -> Iterator[bool]:
    """The log goes to standard error; into the journal by field, if that is where it leads and JSON is not wanted.

    Gives whether a program is to read it: then an error that ends the pool, too, belongs into the log and not beside
    it. At the end all is written within a second, or standard error is let go, so that nothing else waits for it.
    """
    fd = _stderr()
    if fd is None:
        with _logging(lambda _: None, verbose):
            yield False
        return
    to_journal = not as_json and is_journal(fd, environ)
    own = os.dup(fd)  # standard error may be let go while the thread still waits for its reader
    owned = contextlib.ExitStack()
    owned.callback(os.close, own)
    ways = [Stream(own, _line(as_json, to_journal, verbose), sys.stderr.encoding).send]
    if to_journal:
        journal = Journal(journal_socket)
        owned.callback(journal.close)
        ways.insert(0, journal.send)
    with _written(ways, owned, fd, verbose):
        yield as_json or to_journal


@contextlib.contextmanager
def to_file(path: Path, verbose: bool) -> Iterator[None]:
    """The log goes to standard error, which is that file and is kept from growing without end."""
    fd = _stderr()
    assert fd is not None  # whoever names the file has opened it
    with _written([BoundedFile(path, fd, lines.for_people).send], contextlib.ExitStack(), fd, verbose):
        yield


@contextlib.contextmanager
def _written(
    ways: Sequence[Callable[[Entry], None]], owned: contextlib.ExitStack, stderr: int, verbose: bool
) -> Iterator[None]:
    """`owned` is what the ways need; it is closed unless the thread is still at it."""
    writer = Writer(ways)
    try:
        with _logging(writer.put, verbose):
            yield
    finally:
        if writer.close(FLUSH_S):
            owned.close()
        else:
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, stderr)
            os.close(nowhere)


@contextlib.contextmanager
def _logging(put: Callable[[Entry], None], verbose: bool) -> Iterator[None]:
    root, handler = logging.getLogger("pool"), _Handler(put)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    root.propagate = False
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.propagate = True


class _Handler(logging.Handler):
    def __init__(self, put: Callable[[Entry], None]) -> None:
        super().__init__()
        self._put = put

    def emit(self, record: logging.LogRecord) -> None:
        self._put(entry_of(record))


def _line(as_json: bool, to_journal: bool, verbose: bool) -> Callable[[Entry], str]:
    if as_json:
        return lines.as_json
    if to_journal:
        return lines.prefixed
    return lines.with_fields if verbose else lines.for_people


def _stderr() -> int | None:
    """None where the process was started without one: the number may be another file's by now."""
    try:
        return None if sys.stderr is None else sys.stderr.fileno()
    except OSError:
        return None

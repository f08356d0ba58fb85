"""Where the log of this process goes, and until when."""

import contextlib
import itertools
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

from pool.logs import lines
from pool.logs.entry import Entry, entry_of
from pool.logs.file import BoundedFile, Stream, Terminal
from pool.logs.journal import SOCKET, Journal, is_journal
from pool.logs.writer import Writer

__all__ = ["show", "since", "to_file", "to_stderr"]

MOST_KEPT = 1000  # entries
MOST_TOLD, MOST_TOLD_CHARS = 200, 256 << 10  # of them in one answer
FLUSH_S = 1.0  # how long the end of the log waits for whoever reads


@contextlib.contextmanager
def to_stderr(as_json: bool, level: int, environ: Mapping[str, str], journal_socket: Path = SOCKET) -> Iterator[bool]:
    """The log goes to standard error; into the journal by field, if that is where it leads and JSON is not wanted.

    Gives whether a program is to read it: then an error that ends the pool, too, belongs into the log and not beside
    it. At the end all is written within a second, or standard error is let go, so that nothing else waits for it.
    """
    fd = _stderr()
    if fd is None:
        with _logging(lambda _: None, level):
            yield False
        return
    to_journal = not as_json and is_journal(fd, environ)
    own = os.dup(fd)  # standard error may be let go while the thread still waits for its reader
    owned = contextlib.ExitStack()
    owned.callback(os.close, own)
    terminal = not as_json and os.isatty(fd)
    colour = terminal and lines.wants_colour(environ)
    stream = (Terminal if terminal else Stream)(own, _line(as_json, to_journal, level, colour), sys.stderr.encoding)
    ways: list[Callable[[Entry], None]] = [stream.send]
    if to_journal:
        journal = Journal(journal_socket)
        owned.callback(journal.close)
        ways.insert(0, journal.send)
    with _written(ways, owned, fd, level, stream.show if isinstance(stream, Terminal) else None):
        yield as_json or to_journal


@contextlib.contextmanager
def to_file(path: Path, level: int, shown: Callable[[str], None] | None = None) -> Iterator[None]:
    """The log goes to standard error, which is that file and is kept from growing without end.

    `shown` is given what goes on now, in a thread.
    """
    fd = _stderr()
    assert fd is not None  # whoever names the file has opened it
    with _written([BoundedFile(path, fd, lines.for_people).send], contextlib.ExitStack(), fd, level, shown):
        yield


@contextlib.contextmanager
def _written(
    ways: Sequence[Callable[[Entry], None]],
    owned: contextlib.ExitStack,
    stderr: int,
    level: int,
    shown: Callable[[str], None] | None = None,
) -> Iterator[None]:
    """`owned` is what the ways need; it is closed unless the thread is still at it."""
    writer = Writer(ways, shown)
    try:
        with _logging(writer.put, level, writer.show):
            yield
    finally:
        writer.show("")
        if writer.close(FLUSH_S):
            owned.close()
        else:
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, stderr)
            os.close(nowhere)


@contextlib.contextmanager
def _logging(
    put: Callable[[Entry], None], level: int, shown: Callable[[str], bool] = lambda _: False
) -> Iterator[None]:
    root, handler = logging.getLogger("pool"), _Handler(put, shown)
    root.addHandler(handler)
    root.setLevel(level)
    root.propagate = False
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.propagate = True


def since(number: int) -> list[tuple[int, Entry]]:
    """The entries after this number, with theirs: the oldest of those that are kept, and not too many at once."""
    found = [each for handler in _handlers() for each in list(handler.kept) if each[0] > number][:MOST_TOLD]
    sizes = accumulate(len(repr(entry)) for _, entry in found)
    return [each for each, total in zip(found, sizes, strict=True) if total <= MOST_TOLD_CHARS or each is found[0]]


def show(text: str) -> bool:
    """What goes on now, below the log in a terminal, until the next one; "" ends it. False: nobody sees it."""
    return any(handler.show(text) for handler in _handlers())  # there is one at most


def _handlers() -> list["_Handler"]:
    return [handler for handler in logging.getLogger("pool").handlers if isinstance(handler, _Handler)]


class _Handler(logging.Handler):
    """Keeps the last entries too, for whoever asks the pool. `emit` holds the handler's own lock."""

    def __init__(self, put: Callable[[Entry], None], shown: Callable[[str], bool]) -> None:
        super().__init__()
        self._put = put
        self.show = shown
        self._numbers = itertools.count(1)
        self.kept: deque[tuple[int, Entry]] = deque(maxlen=MOST_KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        entry = entry_of(record)
        self.kept.append((next(self._numbers), entry))
        self._put(entry)


def _line(as_json: bool, to_journal: bool, level: int, colour: bool) -> Callable[[Entry], str]:
    if as_json:
        return lines.as_json_line
    if to_journal:
        return lines.prefixed
    return partial(lines.for_people, colour=colour, fields=level <= logging.DEBUG)


def _stderr() -> int | None:
    """None where the process was started without one: the number may be another file's by now."""
    try:
        return None if sys.stderr is None else sys.stderr.fileno()
    except OSError:
        return None

"""On which line of a TOML text a key stands; `tomllib` does not tell.

It reads the text a statement at a time: as many lines as `tomllib` takes for a whole one. Keys inside inline tables
and arrays have the line of the key that holds them. REQUIRES a text that `tomllib` has accepted.
"""

import tomllib
from collections.abc import Iterator, Mapping

__all__ = ["KeyPath", "TomlSource"]

KeyPath = tuple[str | int, ...]

_ENDS = ("]", "}", '"""', "'''")  # one of these is on the last line of a value that has several


class TomlSource:
    """The lines of the keys of one TOML text."""

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        self._last: dict[KeyPath, int] = {}  # the number of the newest table of each array
        table: KeyPath = ()
        for number, statement, found in _statements(text):
            keys = tuple(_keys(found))
            if statement.lstrip().startswith("["):
                keys, table = (), self._enter(keys, array=statement.lstrip().startswith("[["))
            for length in range(1, len(table + keys) + 1):
                self._lines.setdefault((table + keys)[:length], number)

    def line_of(self, path: KeyPath) -> int | None:
        """The line of the key, else of the nearest table or key around it; None if neither is there."""
        known = (self._lines.get(path[:length]) for length in range(len(path), 0, -1))
        return next((line for line in known if line is not None), None)

    def _enter(self, keys: KeyPath, *, array: bool) -> KeyPath:
        """The table that a header begins; a part that is an array is its newest table."""
        path: KeyPath = ()
        for part in keys[:-1]:
            path = (*path, part)
            if path in self._last:
                path = (*path, self._last[path])
        path = (*path, keys[-1])
        if array:
            self._last[path] = self._last.get(path, -1) + 1
            return (*path, self._last[path])
        return path


def _statements(text: str) -> Iterator[tuple[int, str, Mapping[str, object]]]:
    """Each header and each key with its value: its first line, its text, and what `tomllib` makes of it alone."""
    statement, first = "", 1
    for number, line in enumerate(text.split("\n"), start=1):
        statement += f"{line}\n"
        if number > first and not any(end in line for end in _ENDS):
            continue
        try:
            found = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        if found:
            yield first, statement, found
        statement, first = "", number + 1


def _keys(found: object) -> Iterator[str]:
    while isinstance(found, Mapping) and len(found) == 1:
        ((key, found),) = found.items()
        yield key

"""On which line of a TOML text a key stands; `tomllib` does not tell.

It reads table headers, `[[array]]` headers and the keys at the start of a line, and steps over strings and
arrays of several lines. Keys inside inline tables and arrays have the line of the key that holds them.
REQUIRES a text that `tomllib` has accepted.
"""

import re

__all__ = ["KeyPath", "TomlSource"]

KeyPath = tuple[str | int, ...]

_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"[ \t]*(\[\[?)[ \t]*({_KEY})[ \t]*\]")
_ASSIGNMENT = re.compile(rf"[ \t]*({_KEY})[ \t]*=")
_TOKEN = re.compile(r'''"""|\'\'\'|"(?:[^"\\]|\\.)*"|'[^']*'|\#|[\[\]{}]''')
_END = {'"""': re.compile(r'(?:[^"\\]|\\.|"(?!""))*?"""'), "'''": re.compile(r".*?'''")}


class TomlSource:
    """The lines of the keys of one TOML text."""

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        self._last: dict[KeyPath, int] = {}
        table: KeyPath = ()
        quote, depth = "", 0
        for number, line in enumerate(text.split("\n"), start=1):
            value = line
            if not quote and not depth:
                if header := _HEADER.match(line):
                    table = self._enter(_parts(header[2]), array=header[1] == "[[")
                    self._note(table, number)
                    continue
                assignment = _ASSIGNMENT.match(line)
                if assignment is None:
                    continue
                self._note(table + _parts(assignment[1]), number)
                value = line[assignment.end() :]
            quote, depth = _left_open(value, quote, depth)

    def line_of(self, path: KeyPath) -> int | None:
        """The line of the key, else of the nearest table or key around it; None if neither is there."""
        for length in range(len(path), 0, -1):
            line = self._lines.get(path[:length])
            if line is not None:
                return line
        return None

    def _enter(self, parts: KeyPath, *, array: bool) -> KeyPath:
        path: KeyPath = ()
        for part in parts[:-1]:
            path = (*path, part)
            if path in self._last:
                path = (*path, self._last[path])
        path = (*path, parts[-1])
        if array:
            self._last[path] = self._last.get(path, -1) + 1
            return (*path, self._last[path])
        return path

    def _note(self, path: KeyPath, line: int) -> None:
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], line)


def _parts(key: str) -> KeyPath:
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in re.findall(_PART, key))


def _left_open(text: str, quote: str, depth: int) -> tuple[str, int]:
    """The string delimiter and the number of brackets that are still open after `text`."""
    at = 0
    while True:
        if quote:
            end = _END[quote].match(text, at)
            if end is None:
                return quote, depth
            at, quote = end.end(), ""
        token = _TOKEN.search(text, at)
        if token is None or token[0] == "#":
            return quote, depth
        at = token.end()
        if token[0] in _END:
            quote = token[0]
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1

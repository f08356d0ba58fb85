"""What a key of `config.toml` may be. Nothing is bent: "Gb" would be bits, a text is no number, and `true` is not 1."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

STUB = "stub:"  # a model of the tests' backend, which has no files


@dataclass(frozen=True)
class Kind:
    read: Callable[[Any, str], Any]
    """Of a value and the folder in which paths start. Raises `ValueError`, without a text where `right` says enough."""
    right: str
    """What may be written, for messages and `explain`."""

    def checked(self, value: object, base: str) -> Any:
        try:
            return self.read(value, base)
        except ValueError as error:
            raise ValueError(str(error) or f"{value!r:.80} does not fit; write {self.right}") from None

    def or_word(self, word: str) -> "Kind":
        """Takes a word, too, which is None once it is read."""
        right = f'"{word}" or {self.right}'
        return Kind(lambda value, base: None if value == word else self.read(value, base), right)


def require(holds: bool, value: Any, mistake: str = "") -> Any:
    if not holds:
        raise ValueError(mistake)
    return value


def between(least: float, most: float, unit: str = "") -> Kind:  # a whole number where `least` is one
    of = type(least)
    right = f"a {'whole ' if of is int else ''}number {unit and f'of {unit} '}from {least} to {most}"
    return Kind(lambda value, _: of(require(type(value) in (of, int) and least <= value <= most, value)), right)


def choice(*words: str | bool) -> Kind:
    right = " or ".join(map(json.dumps, words))
    return Kind(lambda value, _: require(isinstance(value, str | bool) and value in words, value), right)


def quantity(units: Mapping[str, float], most: float, such: str) -> Kind:
    def read(value: Any, _: str) -> Any:
        match = re.fullmatch(r"(\d{1,15}) ?([A-Za-z]+)", value, re.ASCII) if isinstance(value, str) else None
        amount = int(match[1]) * units.get(match[2], 0) if match else 0
        return require(0 < amount <= most, amount)

    return Kind(read, f"a whole number with its unit, such as {such}")


def many(of: type, kind: Kind, such: str) -> Kind:
    """A list or a table (`dict`) of values of one kind."""

    def read(value: Any, base: str) -> Any:
        if isinstance(require(isinstance(value, of), value), dict):
            return {name: kind.read(each, base) for name, each in value.items()}
        return [kind.read(each, base) for each in value]

    return Kind(read, f"a {'table' if of is dict else 'list'} such as {such}")


def _devices(value: Any, _: str) -> list[Any]:
    entries = [value] if isinstance(value, str) else value
    require(isinstance(entries, list) and bool(entries) and [] not in entries, value)
    named = [one for each in entries if each != "cpu" for one in (each if isinstance(each, list) else [each])]
    for one in named:
        is_uuid = isinstance(one, str) and re.fullmatch(r"(GPU|MIG)-[\w/-]+", one, re.ASCII)
        require(bool(is_uuid) or (type(one) is int and one >= 0), one)
        require(named.count(one) == 1, one, f"{one!r} is in the list twice; write each device once")
    return entries


def _located(value: Any, base: str) -> str:
    """Absolute. A link such as `models/current` stays one, and a restart follows it anew."""
    path: str = require(isinstance(value, str) and value != "" and "\0" not in value, value)
    if not path.startswith(STUB):
        path = os.path.abspath(os.path.join(base, os.path.expanduser(path)))
    path.encode()  # raises where a folder's name is not UTF-8, so no message can carry it
    return path


def _existing(value: Any, base: str) -> str:
    path = _located(value, base)
    is_there = path.startswith(STUB) or os.path.exists(path)
    require(is_there, path, f"{path!r} is not there; write the path of a file or folder that is")
    return path


FLAG = choice(True, False)
TEXT = Kind(
    lambda value, _: require(isinstance(value, str) and value.isprintable() and 0 < len(value.encode()) <= 255, value),
    "a text of 1 to 255 bytes without control characters",
)
PATH = Kind(_located, "a path")
EXISTING = Kind(_existing, "a path")
DURATION = quantity({"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}, 1e6, '"250ms", "60s", "2m" or "1h"')
SIZE = quantity({"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}, 2**62, '"512MiB" or "2GiB"')
DEVICES = Kind(_devices, 'a list of devices: [0, 1], ["GPU-uuid"], ["cpu", "cpu"], or with a group [[0, 1], 2]')

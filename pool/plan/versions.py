"""The versions of a model on its disk: which there are, and which are whole and at rest.

    path/saved_model.pb             one version without a number
    path/3/saved_model.pb           version 3

What a copy has not finished is not served: a SavedModel is whole once its graph and all parts of its variables are
there, and at rest once two looks have found the same files. Nothing is read but names, sizes and times.
"""

import os
import re
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pool.config.sections import STUB
from pool.wire.files import Files, files_at

REST_NS = 2_000_000_000  # a first look believes files that are older
NEWEST, MOST = 8, 32  # versions that are looked at where the newest is served, and where all are
PARTS = re.compile(r"variables\.data-\d{5}-of-(\d{5})")
UNREAD = Files("", 0, -1)
MARKS = ("saved_model.pb", "saved_model.pbtxt", "model.stub")  # the last one: of the tests' backend

Chosen = Literal["newest", "all"] | Sequence[int]


class Version(NamedTuple):
    number: int | None  # None: the path itself is the model
    path: str
    files: Files
    is_whole: bool  # and at rest


class Look(NamedTuple):
    versions: tuple[Version, ...] = ()  # ascending
    troubles: tuple[str, ...] = ()


def look(path: str, chosen: Chosen, extra: Sequence[str], before: Look | None) -> Look:
    """What is there now. `extra`: other files of the model. `before`: the last look, of any path. Never raises."""
    seen = before.versions if before else ()
    old = {each.path: each for each in seen if f"{each.path}/".startswith(f"{path}/")}
    try:
        found = _look(path, chosen, extra)
    except OSError as error:
        unknown = tuple(each._replace(is_whole=False) for each in old.values())
        return Look(unknown, (f"{path} cannot be read: {error.strerror or error}",))
    versions = []
    for each in found.versions:
        # The clock of the disk may be another one, so the second look does not ask it.
        is_same = each.path in old and old[each.path].files == each.files
        is_old = not old and time.time_ns() - each.files.changed_ns > REST_NS
        if each.files != UNREAD or each.path in old:  # what is served stays, and others are not waited for
            versions.append(each._replace(is_whole=each.is_whole and (is_same or is_old)))
    there = {each.path for each in versions}
    # One that has gone may be on its way back: `mv` of a folder over another takes two steps.
    versions += [each._replace(is_whole=False) for each in old.values() if each.path not in there and each.is_whole]
    return Look(tuple(sorted(versions, key=lambda each: each.number or 0)), found.troubles)


def _look(path: str, chosen: Chosen, extra: Sequence[str]) -> Look:
    prefix, folder = (STUB, path.removeprefix(STUB)) if path.startswith(STUB) else ("", path)
    if prefix and not os.path.isabs(folder):
        return Look((Version(None, path, Files("", 0, 0), True),))
    if not os.path.isdir(folder) or any(os.path.exists(os.path.join(folder, name)) for name in MARKS):
        return Look((Version(None, path, files_at(folder, *extra), _is_whole(folder)),))
    names, troubles = _numbers(folder)
    if not names:  # whoever loads it says what is missing
        return Look((Version(None, path, files_at(folder, *extra), True),), tuple(troubles))
    if isinstance(chosen, str):
        numbers = sorted(names)[-(NEWEST if chosen == "newest" else MOST) :]
    else:
        numbers = [number for number in sorted(chosen) if number in names]
    found = []
    for number in numbers:
        inside = os.path.join(folder, names[number])
        try:
            found.append(Version(number, prefix + inside, files_at(inside, *extra), _is_whole(inside)))
        except OSError as error:
            if os.path.exists(inside):  # else somebody takes it away
                troubles.append(f"{inside} cannot be read: {error}")
                found.append(Version(number, prefix + inside, UNREAD, False))
    return Look(tuple(found), tuple(troubles))


def _numbers(folder: str) -> tuple[dict[int, str], list[str]]:
    """The folders that are versions by their number, and what is wrong with others."""
    names: dict[int, str] = {}
    troubles = []
    for name in sorted((each.name for each in os.scandir(folder) if each.is_dir()), key=lambda name: (len(name), name)):
        if not name.isascii() or not name.isdigit():
            continue
        if len(name) > 40 or int(name) >= 2**63:
            troubles.append(f"{folder}/{name:.40} is no version: its number is not below 2**63")
        elif int(name) in names:
            troubles.append(f"{folder}/{name} is no version: {names[int(name)]} has the same number")
        else:
            names[int(name)] = name
    return names, troubles


def _is_whole(path: str) -> bool:
    if not os.path.isdir(path):
        return os.path.getsize(path) > 0
    if not any(os.path.exists(file := os.path.join(path, name)) and os.path.getsize(file) > 0 for name in MARKS):
        return False
    variables = os.path.join(path, "variables")
    if not os.path.isdir(variables):
        return True
    names = os.listdir(variables)
    parts = [match for match in map(PARTS.fullmatch, names) if match]
    return not names or ("variables.index" in names and bool(parts) and len(parts) == int(parts[0][1]))

"""Which version of each model is served: the newest one when the configuration is read, and what has come since.

    NAME/1, NAME/2 ─ resolve ─► Served ─ look_again ─► another Served: newer, whole, at rest, and not known to be broken
                                  ▲                         │
                                  └──── every [pool] watch ─┘

Looks at names, sizes and times, and reads no model. Never in the pool's loop: a disk may not answer.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pool.wire.model_files import NotServed, holds_saved_model, look
from pool.wire.versions import STUB_FILES, versions_in

__all__ = ["Look", "Served", "Stamp", "look_again", "resolve"]

MOST_FILES = 10_000  # of one version that are looked at

Stamp = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of each file: another one means that somebody has written there."""


@dataclass(frozen=True, slots=True)
class Served:
    """One version of a model. `path` is its folder, as a worker is told of it; `stamp` as it was when it was chosen."""

    number: int
    path: str
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class Look:
    """`found`: by model, what is to be served from now on. `seen`: by path, versions that may be on their way here yet.

    `troubles`: by model, why its versions cannot be seen; what is served goes on.
    """

    found: Mapping[str, Served]
    seen: Mapping[str, Stamp]
    troubles: Mapping[str, str]


def resolve(path: str) -> Served | None:
    """The newest whole version there; None where the path is of one model, or of nothing that can be served."""
    prefix, folder = _split(path)
    if folder is None:
        return None
    try:
        found = look(folder)
        return None if found.version is None else Served(found.version, f"{prefix}{found.path}", _stamp(found.path))
    except (NotServed, OSError):
        return None


def look_again(
    paths: Mapping[str, str],
    served: Mapping[str, Served],
    seen: Mapping[str, Stamp],
    broken: Mapping[str, Stamp],
) -> Look:
    """`paths`: of each model, as configured. `seen`: of the last look: what is the same since is at rest.

    `broken`: by path, what its files were when it did not come up. Raises nothing.
    """
    found: dict[str, Served] = {}
    marks: dict[str, Stamp] = {}
    troubles: dict[str, str] = {}
    for name, path in paths.items():
        prefix, folder = _split(path)
        if folder is None:
            continue
        try:
            chosen = _newer(prefix, Path(folder), served.get(name), seen, broken, marks)
        except OSError as error:
            if name in served:
                troubles[name] = f"{folder} cannot be read: {error.strerror or error}"
        except LookupError as error:
            troubles[name] = str(error)
        else:
            if chosen is not None:
                found[name] = chosen
    return Look(found, marks, troubles)


def _newer(
    prefix: str,
    folder: Path,
    now: Served | None,
    seen: Mapping[str, Stamp],
    broken: Mapping[str, Stamp],
    marks: dict[str, Stamp],
) -> Served | None:
    """From the newest down to the one that is served; what is older only where that is broken, or is gone."""
    if now is None and (not folder.is_dir() or holds_saved_model(folder)):
        return None
    whole = [version for version in reversed(versions_in(folder)) if holds_saved_model(version.folder)]
    for version in whole:
        path = f"{prefix}{version.folder}"
        if now is not None and path == now.path and path not in broken:
            return None
        try:
            stamp = _stamp(version.folder)
        except FileNotFoundError:
            continue  # somebody writes there at this moment
        if broken.get(path) == stamp:
            continue
        if seen.get(path) == stamp:
            return Served(version.number, path, stamp)
        marks[path] = stamp
    if not whole and now is not None:
        raise LookupError(f"no version is left in {folder}")
    return None


def _split(path: str) -> tuple[str, str | None]:
    """What goes before the folder, which is None where there are no files."""
    if path.startswith(STUB_FILES):
        return STUB_FILES, path.removeprefix(STUB_FILES)
    return "", None if path.startswith("stub:") else path


def _stamp(folder: Path) -> Stamp:
    """Raises `OSError`."""

    def refuse(error: OSError) -> None:
        raise error

    files: list[tuple[str, int, int]] = []
    for where, _, names in os.walk(folder, onerror=refuse):
        for name in names[: MOST_FILES - len(files)]:
            about = os.stat(os.path.join(where, name))
            files.append((os.path.relpath(os.path.join(where, name), folder), about.st_size, about.st_mtime_ns))
    return tuple(sorted(files))

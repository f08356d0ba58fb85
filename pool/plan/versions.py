"""Which versions of each model are served: the newest one or all when the configuration is read, and what came since.

    NAME/1, NAME/2 ─ resolve ─► Served ─ look_again ─► another Served: newer, whole, at rest, and not known to be broken
                   └ whole ─► several ┘                     │
                                  ▲                         │
                                  └──── every [pool] watch ─┘

Looks at names, sizes and times, and reads no model. Never in the pool's loop: a disk may not answer.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pool.wire.model_files import NotServed, holds_saved_model, is_whole, look
from pool.wire.versions import MOST_VERSIONS, STUB_FILES, versions_in

__all__ = ["Look", "Served", "Stamp", "Watched", "look_again", "resolve", "whole_versions"]

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
class Watched:
    """A model whose folder is looked at: `path` as configured, what is `served` of it, which rises, and whether all
    are to be (`every`), or the newest.
    """

    path: str
    served: tuple[Served, ...]
    every: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """`found`: by model, what is to be served from now on: new versions of models of which the newest is served, or
    where there are none, of those of which all are, at most one more of each.

    `seen`: by path, versions that may be on their way here yet. `troubles`: by model, why its versions cannot be seen;
    what is served goes on.
    """

    found: Mapping[str, tuple[Served, ...]]
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


def whole_versions(path: str) -> dict[int, Served]:
    """By number, those that miss nothing, as far as can be seen; none where the path has none. Raises `OSError`."""
    prefix, folder = _split(path)
    if folder is None or not os.path.isdir(folder) or holds_saved_model(Path(folder)):
        return {}
    whole = [version for version in versions_in(Path(folder)) if is_whole(version.folder)]
    return {each.number: Served(each.number, f"{prefix}{each.folder}", _stamp(each.folder)) for each in whole}


def look_again(models: Mapping[str, Watched], seen: Mapping[str, Stamp], broken: Mapping[str, Stamp]) -> Look:
    """`seen`: of the last look: what is the same since is at rest. `broken`: by path, what its files were when it did
    not come up. Raises nothing.
    """
    newest: dict[str, tuple[Served, ...]] = {}
    several: dict[str, tuple[Served, ...]] = {}
    marks: dict[str, Stamp] = {}
    troubles: dict[str, str] = {}
    for name, model in models.items():
        prefix, folder = _split(model.path)
        if folder is None:
            continue
        try:
            if model.every:
                if (others := _others(prefix, Path(folder), model.served, seen, broken, marks)) is not None:
                    several[name] = others
            elif (newer := _newer(prefix, Path(folder), model.served[-1:], seen, broken, marks)) is not None:
                newest[name] = (newer,)
        except OSError as error:
            if model.served:
                troubles[name] = f"{folder} cannot be read: {error.strerror or error}"
        except LookupError as error:
            troubles[name] = str(error)
    return Look(newest or several, marks, troubles)


def _others(
    prefix: str,
    folder: Path,
    served: tuple[Served, ...],
    seen: Mapping[str, Stamp],
    broken: Mapping[str, Stamp],
    marks: dict[str, Stamp],
) -> tuple[Served, ...] | None:
    """All that are there and may be served; None where those are served already. Of new ones the newest, alone."""
    whole = {version.number: version.folder for version in versions_in(folder) if is_whole(version.folder)}
    if not whole:
        raise LookupError(f"no version is left in {folder}")
    kept = tuple(each for each in served if each.number in whole)
    known = {each.number for each in kept}
    for number in sorted(whole.keys() - known, reverse=True):
        path = f"{prefix}{whole[number]}"
        try:
            stamp = _stamp(whole[number])
        except FileNotFoundError:
            continue  # somebody writes there at this moment
        if broken.get(path) == stamp:
            continue
        if len(kept) == MOST_VERSIONS:
            raise LookupError(f"{len(whole)} versions are in {folder}, and at most {MOST_VERSIONS} are served at once")
        if seen.get(path) == stamp:
            found = (*kept, Served(number, path, stamp))
            return tuple(sorted(found, key=lambda each: each.number))
        marks[path] = stamp
    # Those that have gone are served on until another can be.
    return kept if kept and len(kept) < len(served) else None


def _newer(
    prefix: str,
    folder: Path,
    served: tuple[Served, ...],
    seen: Mapping[str, Stamp],
    broken: Mapping[str, Stamp],
    marks: dict[str, Stamp],
) -> Served | None:
    """From the newest down to the one that is served; what is older only where that is broken, or is gone."""
    now = served[-1] if served else None
    if now is None and (not folder.is_dir() or holds_saved_model(folder)):
        return None
    whole = [version for version in reversed(versions_in(folder)) if is_whole(version.folder)]
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

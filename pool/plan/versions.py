"""Which versions of each model are served: what `versions` and `labels` of `[[model]]` choose, and what came since.

[[model]] digits, "newest" ─► digits, of one version; the pool may choose another
[[model]] digits, [1, 3]   ─► digits@1, digits@3: each placed, warmed up and batched as a model of its own

NAME/1, NAME/2 ─ choose ─► Served ─ look_again ─► another Served: newer, whole, at rest, and not known to be broken

Looks at names, sizes and times, and reads no model. Never in the pool's loop: a disk may not answer.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from pool.core import Versions
from pool.errors import InvalidConfig
from pool.wire.entries import entry_name, is_entry, model_of
from pool.wire.model_files import NotServed, holds_saved_model, is_whole, look
from pool.wire.versions import MOST_VERSIONS, STUB_FILES, Version, versions_in

if TYPE_CHECKING:
    from pool.config import Settings
    from pool.config.settings import ModelSection

__all__ = [
    "Found",
    "Look",
    "Selection",
    "Served",
    "Stamp",
    "Watched",
    "choose",
    "files_of",
    "look_again",
    "older",
    "resolve",
    "select",
]

MOST_FILES = 10_000  # of one version that are looked at
MOST_OLDER = 3  # that are tried at a start where the newest cannot be loaded

Stamp = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of each file: another one means that somebody has written there."""


@dataclass(frozen=True, slots=True)
class Served:
    """One version of a model. `path` is its folder, as a worker is told of it; `stamp` as it was when it was chosen."""

    number: int
    path: str
    stamp: Stamp


Found = Mapping[str, tuple[Served, ...]]
"""By model, the versions that may be served, which rise; none of a model without. Of the newest the last one is."""


# --- as the configuration says --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selection:
    """`settings`: with an entry for each version in the place of a model of several. `served`: what is loaded, by
    model or entry, of those that have versions. `versions`: of the models of several.
    """

    settings: "Settings"
    served: Mapping[str, Served]
    versions: Mapping[str, Versions]

    @property
    def names(self) -> list[str]:
        """Of all models, an entry for each version."""
        return [model.name for model in self.settings.model]

    def entries(self) -> dict[str, list[str]]:
        """By the name of each configured model, what it has become: itself, or one for each version."""
        found: dict[str, list[str]] = {}
        for name in self.names:
            found.setdefault(model_of(name), []).append(name)
        return found

    @property
    def settled(self) -> Mapping[str, tuple[str, ...]]:
        """By model, what jobs get that name it: itself, or its versions, in their order."""
        several = self.versions.items()
        return {name: (name,) for name in self.names if not is_entry(name)} | {
            name: tuple(entry_name(name, number) for number in versions.numbers) for name, versions in several
        }


def select(settings: "Settings", found: Found) -> Selection:
    """An entry for each version that was found, in the place of a model of several. Pure."""
    models: list[ModelSection] = []
    served: dict[str, Served] = {}
    versions: dict[str, Versions] = {}
    for model in settings.model:
        chosen = found.get(model.name, ())
        if model.versions == "newest":
            models.append(model)
            if chosen:
                served[model.name] = chosen[-1]
            continue
        versions[model.name] = Versions(tuple(each.number for each in chosen), model.labels)
        for each in chosen:
            entry = {"name": entry_name(model.name, each.number), "path": each.path, "versions": "newest", "labels": {}}
            models.append(model.model_copy(update=entry))
            served[models[-1].name] = each
    return Selection(settings.model_copy(update={"model": tuple(models)}), served, versions)


def choose(model: "ModelSection") -> tuple[Served, ...]:
    """Looks at the folder: the versions that are to be served; none of a model without. Raises `InvalidConfig`."""
    if model.versions == "newest":
        newest = resolve(model.path)
        return () if newest is None else (newest,)
    written = '"all"' if model.versions == "all" else list(model.versions)
    about = f"model {model.name}: versions = {written}"
    try:
        there = _whole(model.path)
    except OSError as error:
        raise InvalidConfig(f"{about}: {model.path} cannot be read: {error.strerror or error}") from None
    if not there:
        raise InvalidConfig(
            f"{about}: no numbered folder with a complete SavedModel is in {model.path};"
            f" put each version into one, such as {model.path}/1, or leave `versions` out"
        )
    if isinstance(model.versions, tuple):
        if missing := [str(number) for number in model.versions if number not in there]:
            raise InvalidConfig(
                f"{about}: {model.path} has no complete SavedModel of {', '.join(missing)};"
                f" there are: {', '.join(map(str, sorted(there)))}"
            )
    elif len(there) > MOST_VERSIONS:
        raise InvalidConfig(
            f"{about}: {len(there)} are in {model.path}, but at most {MOST_VERSIONS} are served at"
            " once; list the ones to serve"
        )
    chosen = tuple(there[number] for number in (sorted(there) if model.versions == "all" else model.versions))
    if wrong := list(_wrong_labels(model, chosen)):
        raise InvalidConfig("\n".join(wrong))
    return chosen


def _wrong_labels(model: "ModelSection", chosen: tuple[Served, ...]) -> Iterator[str]:
    """A line for each label of a version that is not served."""
    numbers = [each.number for each in chosen]
    for label, number in model.labels.items():
        if number not in numbers:
            served = ", ".join(map(str, numbers))
            yield f"model {model.name}: labels: {label} = {number}, which is not served; served: {served}"


# --- as the disk says -----------------------------------------------------------------------------------------------


def resolve(path: str) -> Served | None:
    """The newest whole version there; None where the path is of one model, or of nothing that can be served."""
    prefix, folder = _split(path)
    if folder is None:
        return None
    try:
        found = look(folder)
        return None if found.version is None else _served(prefix, Version(found.version, found.path))
    except (NotServed, OSError):
        return None


def files_of(model: "ModelSection", found: Sequence[Served]) -> Stamp:
    """What is a model's beside the versions `found`: its files, where there are none, and its handler's.

    As far as that can be seen. Raises nothing.
    """
    places = [] if found else [_split(model.path)[1]]
    if model.handler_path and model.handler:
        top = Path(model.handler_path, model.handler.partition(":")[0].partition(".")[0])
        places += [str(top), f"{top}.py"]
    files: list[tuple[str, int, int]] = []
    for place in filter(None, places):
        for file in islice(_below(place), MOST_FILES):
            with contextlib.suppress(OSError):
                about = os.stat(file)
                files.append((file, about.st_size, about.st_ctime_ns))  # which `chmod` and `cp -p` change, too
    return tuple(sorted(files))


def _below(place: str) -> Iterator[str]:
    """A file's name begins that of what belongs to it: the data of a checkpoint lies beside its `.meta`."""
    folder, name = (place, "") if os.path.isdir(place) else os.path.split(place.removesuffix(".meta"))
    for where, folders, names in os.walk(folder):
        if name:
            folders.clear()
        # What Python has compiled may be a worker's own.
        yield from (os.path.join(where, each) for each in names if each.startswith(name) and not each.endswith(".pyc"))


def older(path: str, newest: Served) -> tuple[Served, ...]:
    """Those that it takes the place of, which rise. Looks at the folder."""
    try:
        there = _whole(path)
    except OSError:
        return ()
    return tuple(there[number] for number in sorted(there) if number < newest.number)[-MOST_OLDER:]


def _whole(path: str) -> dict[int, Served]:
    """By number, those that miss nothing, as far as can be seen; none where the path has none. Raises `OSError`."""
    prefix, folder = _split(path)
    if folder is None or not os.path.isdir(folder) or holds_saved_model(Path(folder)):
        return {}
    return {each.number: _served(prefix, each) for each in versions_in(Path(folder)) if is_whole(each.folder)}


@dataclass(frozen=True, slots=True)
class Watched:
    """A model whose folder is looked at: `path` as configured, what is `served` of it, and whether all are to be
    (`every`), or the newest.
    """

    path: str
    served: tuple[Served, ...]
    every: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """`found`: what is to be served from now on: new versions of models of which the newest is served, or where there
    are none, of those of which all are, at most one more of each.

    `seen`: by path, versions that may be on their way here yet. `troubles`: by model, why its versions cannot be seen;
    what is served goes on.
    """

    found: Found
    seen: Mapping[str, Stamp]
    troubles: Mapping[str, str]


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
            found = _news(model, prefix, Path(folder), seen, broken, marks)
        except OSError as error:
            if model.served:
                troubles[name] = f"{folder} cannot be read: {error.strerror or error}"
        except LookupError as error:
            troubles[name] = str(error)
        else:
            if found is not None:
                (several if model.every else newest)[name] = found
    return Look(newest or several, marks, troubles)


def _news(
    model: Watched,
    prefix: str,
    folder: Path,
    seen: Mapping[str, Stamp],
    broken: Mapping[str, Stamp],
    marks: dict[str, Stamp],
) -> tuple[Served, ...] | None:
    """What is to be served; None where it is already. Of all of them the newest one that is new, beside the others.

    Of the newest alone from the top down to the one that is served; what is older only where that is broken, or gone.
    """
    served = model.served
    if not served and (not folder.is_dir() or holds_saved_model(folder)):
        return None
    whole = {version.number: version for version in versions_in(folder) if is_whole(version.folder)}
    if not whole and served:
        raise LookupError(f"no version is left in {folder}")
    kept = tuple(each for each in served if model.every and each.number in whole)
    for number in sorted(whole.keys() - {each.number for each in kept}, reverse=True):
        path = f"{prefix}{whole[number].folder}"
        if not model.every and served and path == served[-1].path and path not in broken:
            return None
        try:
            found = _served(prefix, whole[number])
        except FileNotFoundError:
            continue  # somebody writes there at this moment
        if broken.get(path) == found.stamp:
            continue
        if len(kept) == MOST_VERSIONS:
            raise LookupError(f"{len(whole)} versions are in {folder}, and at most {MOST_VERSIONS} are served at once")
        if seen.get(path) == found.stamp:
            return tuple(sorted((*kept, found), key=lambda each: each.number))
        marks[path] = found.stamp
    # Those that have gone are served on until another can be.
    return kept if kept and len(kept) < len(served) else None


def _split(path: str) -> tuple[str, str | None]:
    """What goes before the folder, which is None where there are no files."""
    if path.startswith(STUB_FILES):
        return STUB_FILES, path.removeprefix(STUB_FILES)
    return "", None if path.startswith("stub:") else path


def _served(prefix: str, version: Version) -> Served:
    """Raises `OSError`."""

    def refuse(error: OSError) -> None:
        raise error

    folder = version.folder
    files: list[tuple[str, int, int]] = []
    for where, _, names in os.walk(folder, onerror=refuse):
        for name in names[: MOST_FILES - len(files)]:
            about = os.stat(os.path.join(where, name))
            files.append((os.path.relpath(os.path.join(where, name), folder), about.st_size, about.st_mtime_ns))
    return Served(version.number, f"{prefix}{folder}", tuple(sorted(files)))

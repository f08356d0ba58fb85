"""Which versions of each configured model are served, as `versions` and `labels` of `[[model]]` say.

[[model]] digits, "newest" ─► digits, of one version; the pool may choose another
[[model]] digits, [1, 3]   ─► digits@1, digits@3: each placed, warmed up and batched as a model of its own
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pool.core.versions import Versions
from pool.errors import InvalidConfig
from pool.plan.versions import Served, resolve, whole_versions
from pool.wire.entries import entry_name, model_of
from pool.wire.versions import MOST_VERSIONS

if TYPE_CHECKING:
    from pool.config import Settings
    from pool.config.settings import ModelSection

__all__ = ["Found", "Selection", "entered", "entries_of", "select"]

MOST_OLDER = 3  # that are tried at a start where the newest cannot be loaded

Found = Mapping[str, tuple[Served, ...]]


@dataclass(frozen=True, slots=True)
class Selection:
    """`settings`: with an entry for each version in the place of a model of several. `served`: what is loaded, by
    model or entry, of those that have versions. `versions`: of the models of several. `folders`: of those of all.
    `older`: of the newest ones the next below, for the case that they cannot be loaded.
    """

    settings: "Settings"
    served: Mapping[str, Served]
    versions: Mapping[str, Versions]
    folders: Mapping[str, str]
    older: Mapping[str, tuple[Served, ...]]

    def all_entries(self) -> dict[str, list[str]]:
        """By the name of each configured model, what it has become: itself, or one for each version."""
        found: dict[str, list[str]] = {}
        for model in self.settings.model:
            found.setdefault(model_of(model.name), []).append(model.name)
        return found


def select(settings: "Settings", found: Found | None = None) -> Selection:
    """Looks at the folders, but for models in `found`: what has been chosen of them already.

    Raises `InvalidConfig` with a line for each thing that cannot be met.
    """
    models: list[ModelSection] = []
    served: dict[str, Served] = {}
    versions: dict[str, Versions] = {}
    folders: dict[str, str] = {}
    older: dict[str, tuple[Served, ...]] = {}
    wrong: list[str] = []
    for model in settings.model:
        known = None if found is None else found.get(model.name)
        if model.versions == "newest":
            models.append(model)
            if (newest := resolve(model.path) if known is None else known[-1]) is not None:
                served[model.name] = newest
                older[model.name] = _older(model.path, newest)
            continue
        try:
            chosen = _chosen(model) if known is None else known
        except InvalidConfig as error:
            wrong.append(str(error))
            continue
        numbers = tuple(each.number for each in chosen)
        if known is None:  # one that has gone since takes its labels with it
            wrong += _wrong_labels(model, numbers)
        versions[model.name] = Versions(numbers, model.labels)
        if model.versions == "all":
            folders[model.name] = model.path
        served |= {entry_name(model.name, each.number): each for each in chosen}
        models += [_entry(model, each) for each in chosen]
    if wrong:
        raise InvalidConfig("\n".join(wrong))
    return Selection(settings.model_copy(update={"model": tuple(models)}), served, versions, folders, older)


def entries_of(model: "ModelSection", served: Mapping[str, Served], names: Collection[str]) -> "list[ModelSection]":
    """Those of a configured model that have these names: itself, or its entries, where they are served from."""
    found = [each for name, each in served.items() if name in names and model_of(name) == model.name != name]
    return [*([model] if model.name in names else []), *(_entry(model, each) for each in found)]


def entered(settings: "Settings", served: Mapping[str, Served], names: Collection[str]) -> "Settings":
    """The same with the models that have these names: an entry for each version in the place of a model of several."""
    models = tuple(entry for model in settings.model for entry in entries_of(model, served, names))
    return settings.model_copy(update={"model": models})


def _entry(model: "ModelSection", served: Served) -> "ModelSection":
    name = entry_name(model.name, served.number)
    return model.model_copy(update={"name": name, "path": served.path, "versions": "newest", "labels": {}})


def _older(path: str, newest: Served) -> tuple[Served, ...]:
    try:
        there = whole_versions(path)
    except OSError:
        return ()
    return tuple(there[number] for number in sorted(there, reverse=True) if number < newest.number)[:MOST_OLDER]


def _chosen(model: "ModelSection") -> tuple[Served, ...]:
    """Raises `InvalidConfig`."""
    about = f"model {model.name}: versions = {_written(model)}"
    try:
        there = whole_versions(model.path)
    except OSError as error:
        raise InvalidConfig(f"{about}: {model.path} cannot be read: {error.strerror or error}") from None
    if not there:
        raise InvalidConfig(
            f"{about}: there is no numbered folder with a whole SavedModel in {model.path};"
            f" put each version into one, such as {model.path}/1, or leave `versions` out"
        )
    if isinstance(model.versions, tuple):
        if missing := [str(number) for number in model.versions if number not in there]:
            raise InvalidConfig(
                f"{about}: of {', '.join(missing)} there is no whole SavedModel in {model.path};"
                f" there are: {', '.join(map(str, sorted(there)))}"
            )
        return tuple(there[number] for number in model.versions)
    if len(there) > MOST_VERSIONS:
        raise InvalidConfig(
            f"{about}: {len(there)} are in {model.path}, and at most {MOST_VERSIONS} are served at once; list yours"
        )
    return tuple(there[number] for number in sorted(there))


def _wrong_labels(model: "ModelSection", numbers: tuple[int, ...]) -> Iterator[str]:
    served = ", ".join(map(str, numbers))
    for label, number in model.labels.items():
        if number not in numbers:
            yield f"model {model.name}: labels: {label} = {number}, which is not served; served: {served}"


def _written(model: "ModelSection") -> str:
    return '"all"' if model.versions == "all" else str(list(model.versions))

"""Which versions of each configured model are served, as `versions` and `labels` of `[[model]]` say.

[[model]] digits, "newest" ─► digits, of one version; the pool may choose another
[[model]] digits, [1, 3]   ─► digits@1, digits@3: each placed, warmed up and batched as a model of its own
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pool.core import Versions
from pool.errors import InvalidConfig
from pool.plan.versions import Served, resolve, whole_versions
from pool.wire.entries import entry_name, is_entry, model_of
from pool.wire.versions import MOST_VERSIONS

if TYPE_CHECKING:
    from pool.config import Settings
    from pool.config.settings import ModelSection

__all__ = ["Found", "Selection", "choose", "older", "select", "wrong_labels"]

MOST_OLDER = 3  # that are tried at a start where the newest cannot be loaded

Found = Mapping[str, tuple[Served, ...]]


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
        single = {name: (name,) for name in self.names if not is_entry(name)}
        several = {
            name: tuple(entry_name(name, number) for number in versions.numbers)
            for name, versions in self.versions.items()
        }
        return {**single, **several}


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
        served |= {entry_name(model.name, each.number): each for each in chosen}
        models += [_entry(model, each) for each in chosen]
    return Selection(settings.model_copy(update={"model": tuple(models)}), served, versions)


def _entry(model: "ModelSection", served: Served) -> "ModelSection":
    name = entry_name(model.name, served.number)
    return model.model_copy(update={"name": name, "path": served.path, "versions": "newest", "labels": {}})


def older(path: str, newest: Served) -> tuple[Served, ...]:
    """Those that make way for it, the newest first. Looks at the folder."""
    try:
        there = whole_versions(path)
    except OSError:
        return ()
    return tuple(there[number] for number in sorted(there, reverse=True) if number < newest.number)[:MOST_OLDER]


def choose(model: "ModelSection") -> tuple[Served, ...]:
    """Looks at the folder: the versions that are to be served; none of a model without. Raises `InvalidConfig`."""
    if model.versions == "newest":
        newest = resolve(model.path)
        return () if newest is None else (newest,)
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


def wrong_labels(model: "ModelSection", chosen: tuple[Served, ...]) -> Iterator[str]:
    """A line for each label of a version that is not served."""
    numbers = [each.number for each in chosen]
    for label, number in model.labels.items():
        if number not in numbers:
            served = ", ".join(map(str, numbers))
            yield f"model {model.name}: labels: {label} = {number}, which is not served; served: {served}"


def _written(model: "ModelSection") -> str:
    return '"all"' if model.versions == "all" else str(list(model.versions))

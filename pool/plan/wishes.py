"""What somebody wants a running pool to serve: what its file says, a model more, or one less."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pool.errors import InvalidConfig
from pool.plan.plan import Plan
from pool.plan.selection import Found

if TYPE_CHECKING:
    from pool.config import Settings
    from pool.config.settings import ModelSection

__all__ = ["RELOAD", "Wish", "wish_of", "wished"]


@dataclass(frozen=True, slots=True)
class Wish:
    """`what`: reload, load, unload, versions. `model`: the name; `path`: of the one to load.

    `versions`: of models of which all are served, those that the pool has found in their folders while it ran by the
    plan `seen`.
    """

    what: str
    model: str = ""
    path: str = ""
    versions: Found | None = None
    seen: Plan | None = None


RELOAD = Wish("reload")


def wish_of(what: str, about: str) -> Wish:
    """From a client's ASK: `about` is the name to unload, or name and path to load as JSON. Raises `ValueError`."""
    if what == "reload":
        return RELOAD
    if what == "unload":
        return Wish(what, about)
    try:
        told = json.loads(about)
    except (ValueError, RecursionError):
        told = None
    if not (isinstance(told, list) and len(told) == 2 and all(isinstance(each, str) for each in told)):
        raise ValueError("give the name and the path of a model")
    return Wish(what, *told)


def wished(
    wish: Wish,
    read: "Callable[[], Settings] | None",
    former: "Settings",
    loaded: "Mapping[str, ModelSection]",
) -> "tuple[Settings, Mapping[str, ModelSection]]":
    """The settings, and which of their models are not the file's: those that were loaded and that it does not name.

    Raises `InvalidConfig`.
    """
    if wish.what == "load":
        section = _section(wish, former)
        models = [section if model.name == wish.model else model for model in former.model]
        if section not in models:
            models.append(section)
        return former.model_copy(update={"model": tuple(models)}), {**loaded, wish.model: section}
    if wish.what == "unload":
        models = [model for model in former.model if model.name != wish.model]
        if len(models) == len(former.model):
            there = ", ".join(model.name for model in former.model)
            raise InvalidConfig(f"no model {wish.model!r:.100} is served; there are: {there}")
        if not models:
            raise InvalidConfig(f"model {wish.model} is the last one: a pool serves one at least; `pool stop` ends it")
        rest = {name: section for name, section in loaded.items() if name != wish.model}
        return former.model_copy(update={"model": tuple(models)}), rest
    if wish.what == "versions":
        return former, loaded
    assert read is not None
    settings = read()
    names = {model.name for model in settings.model}
    rest = {name: section for name, section in loaded.items() if name not in names}
    return settings.model_copy(update={"model": (*settings.model, *rest.values())}), rest


def _section(wish: Wish, former: "Settings") -> "ModelSection":
    """Of a name that is served already the other keys stay as they are."""
    from pool.config import parse_settings

    mine = parse_settings({"model": [{"name": wish.model, "path": wish.path}]}, "pool load", Path("/")).model[0]
    served = next((model for model in former.model if model.name == wish.model), None)
    return mine if served is None else served.model_copy(update={"path": mine.path})

"""The names of versions that are served beside others: to the pool each is a model of its own, `digits@3`.

No model of a configuration has such a name, so the two never meet.
"""

from collections.abc import Iterable

from pool.wire.records import Model

__all__ = ["entry_name", "is_entry", "model_of", "said_of", "version_of"]

_MARK = "@"


def entry_name(model: str, version: int) -> str:
    return f"{model}{_MARK}{version}"


def is_entry(name: str) -> bool:
    return _MARK in name


def model_of(name: str) -> str:
    """Of an entry's name the model's; any other is one itself."""
    return name.partition(_MARK)[0]


def version_of(name: str) -> int:
    """Of an entry's name."""
    return int(name.rpartition(_MARK)[2])


def said_of(models: Iterable[Model], model: str, version: int | str | None = None) -> Model | None:
    """What a pool's answer to "models" says of the one that a job with this name and version would reach, if any."""
    for each in models:
        if each.name == model:
            return each
        if each.model != model:
            continue
        if each.default if version is None else version == each.version or version in each.labels:
            return each
    return None

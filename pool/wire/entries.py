"""The names of versions that are served beside others: to the pool each is a model of its own, `digits@3`.

No model of a configuration has such a name, so the two never meet.
"""

__all__ = ["entry_name", "is_entry", "model_of", "version_of"]

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

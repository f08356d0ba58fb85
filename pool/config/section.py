"""What every section of the configuration is: frozen, strict, and without unknown keys."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from pool.wire.texts import is_utf8

__all__ = ["AtKey", "Context", "Section", "SomePath", "SomePaths", "Texts", "or_word", "user_of"]

STUB = "stub:"


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Context:
    """Of a validation. `base`: what paths are relative to. `user`: whose private files the pool will read, his id."""

    base: Path
    user: int


class AtKey(ValueError):
    """A mistake of a whole section, or of all, that is to be told at one key: its path from there."""

    def __init__(self, key: str | tuple[str | int, ...], text: str) -> None:
        super().__init__(text)
        self.path = (key,) if isinstance(key, str) else key


def user_of(info: ValidationInfo) -> int:
    """Whose private files are read; see `Context`."""
    return info.context.user if isinstance(info.context, Context) else os.geteuid()


def or_word(word: str) -> BeforeValidator:
    """A word that may stand in the place of a value; it is None once it is loaded."""

    def loaded(value: object) -> object:
        if isinstance(value, str | list | tuple) and not value:  # which said so before
            raise ValueError(f'is empty; write "{word}", or leave it out')
        return None if value == word else value

    return BeforeValidator(loaded)


def _as_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _can_travel(value: str) -> str:
    """A name of a file may be any bytes. Those that are no UTF-8 reach no worker as they are, nor a log."""
    if "\0" in value or not is_utf8(value):
        right = "rename the file or folder, or write a link to it"
        raise ValueError(f"{value!r} is not UTF-8 text without NULs; {right}")
    return value


def _absolute(value: str, info: ValidationInfo) -> str:
    """Relative to the folder in the validation's `Context`."""
    if value.startswith(STUB) or info.context is None:
        return value
    # `abspath`, not `resolve`: a link such as models/current must stay one; a restart follows it anew.
    whole: str = os.path.abspath(info.context.base / os.path.expanduser(value))
    if not is_utf8(whole):
        raise ValueError(f"{whole!r} is not UTF-8 text; rename the folder, or write an absolute path")
    return whole


_Text = Annotated[str, BeforeValidator(_as_text), AfterValidator(_can_travel)]
_NotEmpty = Field(min_length=1)
# `strict=False` lets a TOML array be a tuple; its items stay strict.
Texts = Annotated[tuple[Annotated[_Text, _NotEmpty], ...], Field(strict=False)]
SomePath = Annotated[_Text, _NotEmpty, AfterValidator(_absolute)]
"""Absolute once it is loaded."""
SomePaths = Annotated[tuple[SomePath, ...], Field(strict=False)]

"""What every section of the configuration is: frozen, strict, and without unknown keys."""

import os
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from pool.wire.texts import is_utf8

__all__ = ["PathText", "Section", "Text", "Texts"]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def _as_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _can_travel(value: str) -> str:
    """A name of a file may be any bytes. Those that are no UTF-8 reach no worker as they are, nor a log."""
    if "\0" in value or not is_utf8(value):
        right = "rename what has this name, or write a link to it"
        raise ValueError(f"{value!r} is not text in UTF-8 without NULs; {right}")
    return value


PathText = Annotated[str, BeforeValidator(_as_text), AfterValidator(_can_travel)]
"""Or "": none."""
Text = Annotated[PathText, Field(min_length=1)]
# `strict=False` lets a TOML array be a tuple; its items stay strict.
Texts = Annotated[tuple[Text, ...], Field(strict=False)]

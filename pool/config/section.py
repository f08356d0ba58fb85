"""What every section of the configuration is: frozen, strict, and without unknown keys."""

import os
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["Section", "Text", "Texts", "as_text"]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def as_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Text = Annotated[str, BeforeValidator(as_text), Field(min_length=1)]
# `strict=False` lets a TOML array be a tuple; its items stay strict.
Texts = Annotated[tuple[Text, ...], Field(strict=False)]

"""The keys of `[[model]]` that name the Python around its graph."""

import json
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from pool.config.section import Section, SomePath, or_word
from pool.wire.worker_messages import HandlerSettings

__all__ = ["HandlerKeys"]

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _of_json(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"holds a value that JSON cannot express ({error}); write texts, numbers, true, false,"
            " and lists and tables of them"
        ) from None
    return value


class HandlerKeys(Section):
    """`handler`: "package.module:Class"; None: "off". `handler_path`: a folder; None: "auto", where it is installed."""

    handler: Annotated[str | None, or_word("off")] = None
    handler_path: Annotated[SomePath | None, or_word("auto")] = None
    handler_options: Annotated[dict[str, Any], AfterValidator(_of_json)] = Field(default_factory=dict)

    @field_validator("handler")
    @classmethod
    def _names_a_class(cls, value: str | None) -> str | None:
        if value is not None and _NAME.fullmatch(value) is None:
            right = 'its module and its name, such as "package.module:Class"'
            raise ValueError(f"{value!r} does not name a class; write {right}")
        return value

    @field_validator("handler_path", "handler_options")
    @classmethod
    def _belongs_to_a_handler(cls, value: object, info: ValidationInfo) -> object:
        if value and not info.data.get("handler", "wrong, and told of"):
            raise ValueError("is set without `handler`; set `handler`, or leave this out")
        return value

    def handler_message(self, sizes: tuple[int, ...]) -> HandlerSettings | None:
        """The same, as it travels to a worker; `sizes`: those that batches are padded to."""
        if not self.handler:
            return None
        return HandlerSettings(self.handler, self.handler_path or "", json.dumps(self.handler_options), sizes)

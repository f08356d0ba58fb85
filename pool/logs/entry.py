"""One event of the log: a sentence for a person, and the same in fields for a program."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pool.wire.texts import legible

__all__ = ["Entry", "Field", "about", "callers", "entry_of"]

MESSAGE_CHARS = 16_384  # of a sentence, and of each field
CALLER_CHARS = 300
UNNAMED = "notice"

Field = str | int | float | bool | Sequence[str] | Sequence[int]


@dataclass(frozen=True, slots=True)
class Entry:
    """`time_s` is wall clock, seconds since 1970; `level` is one of logging's. `fields` never change."""

    time_s: float
    level: int
    event: str
    message: str
    fields: Mapping[str, Field]


def about(event: str, **fields: Field | None) -> dict[str, object]:
    """What a log call says besides its sentence: `log.info("slot %d …", 0, extra=about("slot_ready", slot=0))`.

    `event` is a name that stays the same whatever the sentence becomes. A field that is None is left out.
    """
    return {"event": event, "fields": {name: value for name, value in fields.items() if value is not None}}


def callers(text: str) -> str:
    """What a log line carries of a text that somebody else has a say in: one line, and no more than a few hundred
    characters of it. Whoever caused it is told all.
    """
    line = " ".join(text[:CALLER_CHARS].splitlines())
    return line if len(text) <= CALLER_CHARS else f"{line}… ({len(text)} characters)"


def entry_of(record: logging.LogRecord) -> Entry:
    """A traceback becomes the field `exception`. Every text in it can be written as UTF-8."""
    fields: Mapping[str, Field] = getattr(record, "fields", {})
    if record.exc_info:
        fields = {**fields, "exception": logging.Formatter().formatException(record.exc_info)[-MESSAGE_CHARS:]}
    message = legible(record.getMessage())
    if len(message) > MESSAGE_CHARS:
        message = f"{message[:MESSAGE_CHARS]}…"
    return Entry(
        record.created,
        record.levelno,
        getattr(record, "event", UNNAMED),
        message,
        {name: _legible(value) for name, value in fields.items()},
    )


def _legible(value: Field) -> Field:
    if isinstance(value, str):
        return legible(value) if len(value) <= MESSAGE_CHARS else f"{legible(value[:MESSAGE_CHARS])}…"
    if isinstance(value, int | float):
        return value
    return [legible(each) for each in value if isinstance(each, str)] or value

"""An entry as a line: for a person, for a journal that reads standard error, or for a program."""

import json
import logging
import math
import time
from datetime import datetime

from pool.logs.entry import Entry, Field
from pool.wire.texts import printable

__all__ = ["as_json", "for_people", "prefixed", "priority", "with_fields"]

# Syslog's numbers.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


def priority(level: int) -> int:
    return next((number for least, number in _PRIORITIES if level >= least), _DEBUG)


def for_people(entry: Entry) -> str:
    """The time of day, the sentence, the level where it is not INFO. A traceback follows in lines of its own."""
    level = "" if entry.level == logging.INFO else f" [{logging.getLevelName(entry.level).lower()}]"
    clock = time.strftime("%H:%M:%S", time.localtime(entry.time_s))
    return f"{clock} {printable(entry.message)}{level}\n{_traceback(entry)}"


def with_fields(entry: Entry) -> str:
    """The same with all that is known, for `--verbose`."""
    known = {"event": entry.event, **entry.fields}
    told = " ".join(f"{name}={_bare(value)}" for name, value in known.items() if name != "exception")
    first, _, rest = for_people(entry).partition("\n")
    return f"{first} · {told}\n{rest}"


def prefixed(entry: Entry) -> str:
    """As sd-daemon(3) has it: the priority, and no time, for the journal has its own."""
    start = f"<{priority(entry.level)}>"
    lines = f"{printable(entry.message)}\n{_traceback(entry)}".splitlines()
    return "".join(f"{start}{line}\n" for line in lines)


def as_json(entry: Entry) -> str:
    """One object in ASCII, whatever stands in the entry."""
    document: dict[str, object] = {
        "time": datetime.fromtimestamp(entry.time_s).astimezone().isoformat(timespec="milliseconds"),
        "level": logging.getLevelName(entry.level).lower(),
        "event": entry.event,
        "message": entry.message,
    }
    for name, value in entry.fields.items():
        # JSON has no infinity.
        document.setdefault(name, value if not isinstance(value, float) or math.isfinite(value) else str(value))
    return json.dumps(document, default=str) + "\n"


def _traceback(entry: Entry) -> str:
    text = entry.fields.get("exception", "")
    return "".join(f"    {printable(line)}\n" for line in str(text).splitlines())


def _bare(value: Field) -> str:
    """A word as it is, anything else as JSON has it."""
    if isinstance(value, str) and value.isprintable() and value and not set(value) & set(' "='):
        return value
    return json.dumps(value, default=str)

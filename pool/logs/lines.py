"""An entry as a line: for a person, for a journal that reads standard error, or for a program."""

import json
import logging
import math
import time
from collections.abc import Mapping
from datetime import datetime

from pool.logs.entry import Entry, Field
from pool.wire.texts import printable

__all__ = ["as_json_line", "for_people", "prefixed", "priority", "wants_colour"]

# Syslog's numbers.
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


def priority(level: int) -> int:
    return next((number for least, number in _PRIORITIES if level >= least), _DEBUG)


def wants_colour(environ: Mapping[str, str]) -> bool:
    """Of whoever sits at the terminal: see no-color.org."""
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def for_people(entry: Entry, colour: bool = False, fields: bool = False) -> str:
    """Date, time of day, level and sentence; a traceback follows in lines of its own. Times are of the local zone.

    `fields`: all that is known follows the sentence.
    """
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time_s))
    level = f"{logging.getLevelName(entry.level):<7}"
    if colour:
        clock, level = f"\x1b[2m{clock}\x1b[0m", f"\x1b[{_colour(entry.level)}m{level}\x1b[0m"
    known = {"event": entry.event, **entry.fields} if fields else {}
    told = " ".join(f"{name}={_bare(value)}" for name, value in known.items() if name != "exception")
    return f"{clock} {level} {printable(entry.message)}{told and f' · {told}'}\n{_traceback(entry)}"


def _colour(level: int) -> int:
    """Red for an error, yellow for a warning, green for what is well, grey for what is rarely read."""
    return 31 if level >= logging.ERROR else 33 if level >= logging.WARNING else 32 if level >= logging.INFO else 90


def prefixed(entry: Entry) -> str:
    """As sd-daemon(3) has it: the priority, and no time, for the journal has its own."""
    start = f"<{priority(entry.level)}>"
    lines = f"{printable(entry.message)}\n{_traceback(entry)}".splitlines()
    return "".join(f"{start}{line}\n" for line in lines)


def as_json_line(entry: Entry) -> str:
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

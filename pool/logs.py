"""The pool's log: one line an event, on standard error."""

import logging
import sys

__all__ = ["configure"]


def configure(verbose: bool) -> None:
    """Lines for a person: the time, and the level where it is not INFO. Called once, by `pool start`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line("%(asctime)s %(message)s", "%H:%M:%S"))
    root = logging.getLogger("pool")
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    root.propagate = False


class _Line(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the base class's name
        line = super().formatMessage(record)
        return line if record.levelno == logging.INFO else f"{line} [{record.levelname.lower()}]"

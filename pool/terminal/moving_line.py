"""A line on standard error that says what goes on, where a person sees it: in a terminal or under a notebook's cell."""

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator

from pool.wire.texts import printable

__all__ = ["is_watched", "moving_line"]


def is_watched() -> bool:
    notebook = type(sys.stderr).__module__.startswith("ipykernel.")
    return sys.stderr is not None and (notebook or sys.stderr.isatty())


@contextlib.contextmanager
def moving_line() -> Iterator[Callable[[str], None]]:
    """What was said last is shown, and nothing of it stays. Blanks and `\\r` alone: a notebook knows no more."""
    shown = 0

    def show(text: str) -> None:
        nonlocal shown
        text = printable(text)[: shutil.get_terminal_size().columns - 1]
        with contextlib.suppress(OSError, ValueError):  # nobody looks any more
            sys.stderr.write(f"\r{text:<{shown}}{'' if text else chr(13)}")
            sys.stderr.flush()
        shown = len(text)

    try:
        yield show
    finally:
        if shown:
            show("")

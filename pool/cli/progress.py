"""A line that says what is waited for, while a person waits."""

import contextlib
from collections.abc import Callable, Iterator

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from pool.terminal import progress_console
from pool.wire.texts import printable

__all__ = ["Say", "progress"]

Say = Callable[[str], None]


@contextlib.contextmanager
def progress() -> Iterator[Say]:
    """What was said last moves on standard error, if that is a terminal. Nothing of it stays, and elsewhere is none.

    REQUIRES that nothing else is printed meanwhile.
    """
    console = progress_console()
    if not console.is_terminal:
        yield lambda _: None
        return
    moving = Spinner("dots")
    # Standard output is not to go where this goes: it may be a file.
    with Live(moving, console=console, transient=True, redirect_stdout=False, redirect_stderr=False):
        yield lambda text: moving.update(text=Text(printable(text), no_wrap=True, overflow="ellipsis"))

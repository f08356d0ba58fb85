"""A line that says what is waited for, while a person waits."""

import contextlib
from collections.abc import Callable, Iterator

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from pool.terminal import progress_console, span
from pool.wire.records import Slot, Status
from pool.wire.texts import printable

__all__ = ["Say", "doing", "progress", "slots_left"]

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


def doing(slot: Slot) -> str:
    """What the slot's worker does, or the one that is to follow."""
    beside = slot.replacement
    state = slot.state if beside is None else beside.state
    what = (slot.doing if beside is None else beside.doing) or f"for {span(slot.state_s)}"
    return f"slot {slot.slot} {slot.device}: {state}, {what}"


def slots_left(found: Status, left: tuple[int, ...]) -> str:
    """Of slots that get new workers in turn: those that have one on the way, or else the first."""
    slots = [found.slots[number] for number in left]
    busy = [slot for slot in slots if slot.replacement is not None or slot.state != "READY"] or slots[:1]
    return f"{len(left)} left · {'; '.join(map(doing, busy))}"

"""What a person reads: tables for a terminal of any width, numbers with units. A pipe gets neither colours nor cuts."""

import sys
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table

__all__ = ["console", "counted", "printable", "show", "size", "span", "table"]


def console() -> Console:
    """Nothing in a text is markup."""
    return Console(highlight=False, markup=False, emoji=False)


def show(renderable: RenderableType) -> None:
    on = console()
    with on.capture() as capture:
        on.print(renderable)
    # Tables fill their cells with blanks.
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))
    sys.stdout.flush()


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A title that begins with ">" is of a column of numbers. What is too long goes on in the cell's next line."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        is_number = title.startswith(">")
        made.add_column(title.lstrip(">"), justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    for row in rows:
        made.add_row(*(cell if hasattr(cell, "__rich_console__") else printable(str(cell)) for cell in row))
    return made


def printable(text: str) -> str:
    """Without codes that a terminal would obey, on one line."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def span(seconds: float | None) -> str:
    """A duration in at most 7 characters: "0.8 ms", "12 s", "3 h"."""
    if seconds is None:
        return "–"
    units = ((172_800, 86_400, "days"), (7200, 3600, "h"), (120, 60, "min"), (0.9995, 1, "s"), (0, 0.001, "ms"))
    unit_s, unit = next((unit_s, unit) for least, unit_s, unit in units if seconds >= least)
    number = seconds / unit_s
    return f"{number:.{1 if number < 9.95 and unit_s <= 1 else 0}f} {unit}"


def size(nbytes: float) -> str:
    units = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))
    unit_bytes, unit = next((each for each in units if nbytes >= each[0]), units[-1])
    number = nbytes / unit_bytes
    return f"{number:,.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

"""Tables on a terminal and in a pipe.

On a terminal a table has its width, and colours; where the wide form does not fit, a narrow one is shown that wraps.
In a pipe each row is one line of any length, without colours, so that `grep` and `awk` find whole rows. COLUMNS, which
`watch` sets, counts as a width.
"""

import io
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = [
    "STATE_STYLES",
    "Column",
    "new_table",
    "numeric",
    "plain_console",
    "progress_console",
    "show",
    "styled_state",
    "table",
]

Row = TypeVar("Row")

LONG = 40
_UNLIMITED = 10_000
_GAP = (0, 2, 0, 0)

STATE_STYLES = {
    "READY": "green",
    "SERVING": "green",
    "STARTING": "yellow",
    "LOADING": "yellow",
    "DRAINING": "yellow",
    "STOPPING": "yellow",
    "BACKOFF": "red",
    "FATAL": "bold red",
    "STOPPED": "dim",
    "DRAINED": "bold red",
    "QUEUED": "yellow",
    "LEASED": "yellow",
    "DONE": "green",
    "FAILED": "red",
    "EXPIRED": "red",
    "CANCELLED": "dim",
}


def plain_console(file: io.TextIOBase | None = None) -> Console:
    """Prints texts as they are: no markup (a shape is `[?, 64]`), no emoji, no guessed highlights."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal or _columns_set() else _UNLIMITED
    return Console(
        file=file,  # type: ignore[arg-type]  # rich asks for the abstract IO[str]
        width=width,
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        markup=False,
        emoji=False,
        highlight=False,
    )


def progress_console() -> Console:
    """For what moves while something is waited for: on stderr, so that a pipe gets the result alone."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


def show(renderable: RenderableType) -> None:
    """Prints to stdout, without the blanks that rich puts behind a last column."""
    buffer = io.StringIO()
    plain_console(buffer).print(renderable)
    for line in buffer.getvalue().splitlines():
        click.echo(line.rstrip())


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """`cell`: of a row. What is empty is a dash, and several lines are one, with commas, in the wide form.

    `below`: in the narrow form its cells are the second line of the column with this heading; "": they are left out.
    `optional`: there is no column where every cell is empty.
    """

    heading: str
    cell: Callable[[Row], str | Text]
    below: str | None = None
    optional: bool = False


def table(rows: Sequence[Row], *columns: Column[Row]) -> Table:
    """The wide form where it fits, otherwise the narrow one: related facts stand over each other.

    A cell of the wide form is wrapped only past `LONG` characters: one long name is no reason to give it up.
    REQUIRES headings that differ.
    """
    filled = [(column, [column.cell(row) for row in rows]) for column in columns]
    filled = [(column, cells) for column, cells in filled if any(cells) or not column.optional]
    whole = {column.heading: list(map(_in_one_line, cells)) for column, cells in filled}
    least = _of({heading: [cell[:LONG] for cell in cells] for heading, cells in whole.items()})
    console = plain_console(io.StringIO())
    if console.measure(least, options=console.options.update(width=_UNLIMITED)).maximum <= console.width:
        return _of(whole)
    second = {
        column.below: (column.heading.removeprefix(">").lower(), cells) for column, cells in filled if column.below
    }
    narrow = {}
    for column, cells in filled:
        if column.below is None:
            about, under = second.get(column.heading, ("", [""] * len(cells)))
            narrow[f"{column.heading}\n{about}" if second else column.heading] = list(map(_stacked, cells, under))
    return _of(narrow)


def _of(columns: Mapping[str, Sequence[str | Text]]) -> Table:
    filled = new_table(list(columns))
    for line in zip(*columns.values(), strict=True):
        filled.add_row(*line)
    return filled


def _in_one_line(cell: str | Text) -> str | Text:
    return cell.replace("\n", ",") or "–" if isinstance(cell, str) else cell


def _stacked(cell: str | Text, under: str | Text) -> str | Text:
    first = cell or "–"
    if not under:
        return first
    return f"{first}\n{under}" if isinstance(first, str) else Text.assemble(first, (f"\n{under}", "not bold default"))


def new_table(headings: Sequence[str]) -> Table:
    """Columns without lines, as `ps` and `kubectl` print them. A heading that begins with `>` is of numbers."""
    named = any(heading.removeprefix(">") for heading in headings)
    table = Table(box=None, pad_edge=False, padding=_GAP, header_style="bold", show_header=named)
    for heading in headings:
        number = heading.startswith(">")
        table.add_column(
            heading.removeprefix(">"), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return table


def numeric(number: float) -> str:
    """With thousands apart and as many decimals as say something; a dash for a NaN, which nobody knows."""
    if math.isnan(number):
        return "–"
    if isinstance(number, int) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 100 else f"{number:.2f}"


def styled_state(state: str) -> Text:
    return Text(state, STATE_STYLES.get(state, ""))


def _columns_set() -> bool:
    return os.environ.get("COLUMNS", "").isdigit()

"""A table in a part of the screen: sorted by one of its columns, scrolled, with a chart at the end of each line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pool.terminal.sparkline import sparkline

__all__ = ["CHART", "Heading", "Pane"]

CHART = "chart"  # of a row: its figures so far
GAP = 2  # between two columns
CHART_STEP, CHART_STEPS = 10, 6  # characters: a chart doesn't change its width whenever a cell does


@dataclass(frozen=True, slots=True)
class Heading:
    """`key` sorts by it, and is a character of `name`. `text` shows a cell; one that is None is left empty.

    `spare`: where room is short, the column of the highest goes first; those with 0 stay.
    """

    name: str
    key: str
    text: Callable[[Any], str | Text]
    spare: int = 0
    left: bool = False  # and sorted from the smallest


@dataclass(slots=True)
class Pane:
    """`rows` have a cell, which can be ordered, for each heading by its name, and a CHART."""

    headings: Sequence[Heading]
    by: str
    descending: bool
    first: int = 0  # the row at its top
    rows: Sequence[Mapping[str, Any]] = field(default_factory=list)

    def press(self, key: str, page: int) -> None:
        """An arrow or another key that moves, or a heading's: the same once more turns the order round."""
        names = [heading.name for heading in self.headings]
        chosen = {heading.key: heading for heading in self.headings}.get(key)
        if key in ("left", "right"):
            chosen = self.headings[(names.index(self.by) + (1 if key == "right" else -1)) % len(names)]
        if chosen is not None:
            self.descending = not self.descending if chosen.name == self.by else not chosen.left
            self.by = chosen.name
        end = len(self.rows)
        self.first += {"up": -1, "down": 1, "page up": -page, "page down": page, "home": -end, "end": end}.get(key, 0)

    def table(self, console: Console, lines: int, active: bool) -> Table:
        """In at most so many lines, two at least; of its columns those that fit."""
        room = max(1, lines - 1)
        ordered = sorted(self.rows, key=lambda row: _order(row[self.by]), reverse=self.descending)
        self.first = max(0, min(self.first, len(ordered) - room))
        shown = ordered[self.first : self.first + room]
        headings = [each for each in self.headings if any(row[each.name] is not None for row in shown)]
        while True:
            bare = self._filled(headings, shown, active, 0)
            left = console.width - GAP - console.measure(bare, options=console.options.update(width=10_000)).maximum
            most = max(headings, key=lambda each: each.spare, default=None)
            if left >= -GAP or most is None or not most.spare:
                chart = min(left // CHART_STEP, CHART_STEPS) * CHART_STEP
                return self._filled(headings, shown, active, max(0, chart))
            headings.remove(most)

    def _filled(
        self, headings: Sequence[Heading], rows: Sequence[Mapping[str, Any]], active: bool, chart: int
    ) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
        for place, heading in enumerate(headings):
            title = self._titled(heading, active)
            if not place and len(rows) < len(self.rows):
                title.append(f" {self.first + 1}-{self.first + len(rows)} of {len(self.rows)}", "not bold")
            table.add_column(title, justify="left" if heading.left else "right", no_wrap=True)
        for row in rows:
            cells = ["" if row[each.name] is None else each.text(row[each.name]) for each in headings]
            table.add_row(*cells, *([Text(sparkline(row[CHART], chart), "cyan")] if chart else []))
        return table

    def _titled(self, heading: Heading, active: bool) -> Text:
        chosen = heading.name == self.by
        text = Text(heading.name, "bold reverse" if active and chosen else "bold")
        if active:
            place = heading.name.lower().index(heading.key)
            text.stylize("underline", place, place + 1)
        return text.append("↓" if chosen and self.descending else "↑" if chosen else "")


def _order(cell: Any) -> tuple[bool, Any]:
    """What is not known comes before all."""
    return (cell is not None, 0 if cell is None else cell)

"""A record as a table under a notebook's cell."""

from collections.abc import Iterable
from html import escape

__all__ = ["html_table"]


def html_table(title: str, headings: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Whatever stands in a cell is text."""
    lines = [_row("th", headings), *(_row("td", row) for row in rows)]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def _row(kind: str, cells: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{kind}>{escape(str(cell))}</{kind}>' for cell in cells)}</tr>"

"""Curves of characters, over a logarithmic axis."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import NamedTuple

from rich.text import Text

from pool.terminal.tables import numeric

__all__ = ["Curve", "plot"]

HEIGHT = 18
MARGIN = 8  # for the labels of the logarithmic axis
LEAST_WIDTH = 24  # of the plot itself
_JOINT = "·"


class Curve(NamedTuple):
    """`sign`: of a point, so that it is legible without its colour too. `points`: across and, more than 0, up."""

    name: str
    sign: str
    style: str
    points: Sequence[tuple[float, float]]


def plot(curves: Sequence[Curve], width: int, *, across: str, up: str, most: float, mark: str) -> Text:
    """A picture of `width` columns, up to the value `most` across, where there is a line with the text `mark`.

    `across` and `up` name the axes. REQUIRES a point.
    """
    end, columns = numeric(most), max(LEAST_WIDTH, width - MARGIN - 2)
    decades = [log10(value) for curve in curves for _, value in curve.points]
    low, high = floor(min(decades)), max(ceil(max(decades)), floor(min(decades)) + 1)

    def cell(along: float, value: float) -> tuple[int, int]:
        height = (log10(value) - low) / (high - low)
        return round((1 - height) * (HEIGHT - 1)), round(along / most * (columns - 1))

    cells = {(line, columns - 1): ("┊", "green") for line in range(HEIGHT)}
    places = [(curve, [cell(*point) for point in curve.points]) for curve in curves]
    for curve, found in places:
        for (top, left), (bottom, right) in pairwise(found):
            steps = max(abs(bottom - top), abs(right - left), 1)
            for step in range(steps + 1):
                part = step / steps
                cells[round(top + (bottom - top) * part), round(left + (right - left) * part)] = (_JOINT, curve.style)
    for curve, found in places:  # a point is never lost behind a line
        cells.update(dict.fromkeys(found, (curve.sign, curve.style)))
    legend = Text.assemble(*((f"{curve.sign} {curve.name}  ", curve.style) for curve in curves))
    text = Text.assemble(f"{up:>{MARGIN}}  ", legend, (mark.rjust(columns - len(legend)), "green"))
    labels = {cell(0, 10.0**decade)[0]: f"{10.0**decade:,g}" for decade in range(low, high + 1)}
    for line in range(HEIGHT):
        text.append(f"\n{labels.get(line, ''):>{MARGIN}} {'┤' if line in labels else '│'}", "dim")
        text.append_text(Text.assemble(*(cells.get((line, column), " ") for column in range(columns))))
    text.append(f"\n{'':>{MARGIN}} └{'─' * columns}\n{'':>{MARGIN}} 0", "dim")
    return text.append(f"{across:^{columns - len(end)}}{end}")

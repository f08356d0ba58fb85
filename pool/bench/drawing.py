"""The latency–throughput curve in a terminal: lines of Braille dots, p50 and p99 over goodput, latency in decades."""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, isnan, log10

import numpy as np
from rich.text import Text

from pool.bench.point import Point, limit, most
from pool.terminal import numeric

__all__ = ["drawn"]

HEIGHT = 18
MARGIN = 8  # for the labels of the latency
LEAST_WIDTH = 24  # of the plot itself

_BRAILLE = 0x2800
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # of a character, by line and column
_LINES = (("p99", "●", "red"), ("p50", "○", "cyan"))
_LIMIT = ("┊", "green")


def drawn(points: Sequence[Point], width: int) -> Text:
    """Of a sweep, in the order of its measurement: a picture of `width` columns, legible without colours too.

    Of nothing where nothing was answered.
    """
    answered = [point for point in points if not isnan(point.latency_s["p50"])]
    highest, end = most(points), numeric(most(points))
    if not highest:
        return Text()
    columns = max(LEAST_WIDTH, width - MARGIN - 2)
    latencies_ms = [max(point.latency_s[name] * 1000, 1e-6) for point in answered for name, *_ in _LINES]
    low, high = floor(log10(min(latencies_ms))), ceil(log10(max(latencies_ms)))
    high = max(high, low + 1)

    def cell(goodput: float, latency_ms: float) -> tuple[int, int]:
        height = (log10(max(latency_ms, 1e-6)) - low) / (high - low)
        return round((1 - height) * (HEIGHT - 1)), round(goodput / highest * (columns - 1))

    cells = {(line, columns - 1): _LIMIT for line in range(HEIGHT)}
    places = {name: [cell(point.goodput, point.latency_s[name] * 1000) for point in answered] for name, *_ in _LINES}
    for name, _, style in _LINES:
        cells.update({at: (dots, style) for at, dots in _joined(places[name], columns).items()})
    for name, sign, style in _LINES:  # a point is never lost behind a line
        cells.update(dict.fromkeys(places[name], (sign, style)))
    legend = Text.assemble(*((f"{sign} {name}  ", style) for name, sign, style in _LINES))
    text = Text.assemble(f"{'ms':>{MARGIN}}  ", legend, (limit(points).rjust(columns - len(legend)), "green"))
    labels = {cell(0, 10.0**decade)[0]: f"{10.0**decade:,g}" for decade in range(low, high + 1)}
    for line in range(HEIGHT):
        text.append(f"\n{labels.get(line, ''):>{MARGIN}} {'┤' if line in labels else '│'}", "dim")
        text.append_text(Text.assemble(*(cells.get((line, column), " ") for column in range(columns))))
    text.append(f"\n{'':>{MARGIN}} └{'─' * columns}\n{'':>{MARGIN}} 0", "dim")
    axis = "goodput, answers/s" if points[0].load.is_open else "throughput, answers/s"
    return text.append(f"{axis:^{columns - len(end)}}{end}")


def _joined(places: Sequence[tuple[int, int]], columns: int) -> dict[tuple[int, int], str]:
    """Braille characters, by line and column, of lines from the middle of each of these characters to the next."""
    dots = np.zeros((HEIGHT * 4, columns * 2), int)
    for (top, left), (bottom, right) in pairwise(places):
        steps = max(4 * abs(bottom - top), 2 * abs(right - left)) + 1
        lines = np.linspace(4 * top + 1, 4 * bottom + 1, steps).round().astype(int)
        dots[lines, np.linspace(2 * left, 2 * right, steps).round().astype(int)] = 1
    codes = (dots.reshape(HEIGHT, 4, columns, 2) * _DOTS[:, None, :]).sum(axis=(1, 3))
    return {(int(line), int(column)): chr(_BRAILLE + codes[line, column]) for line, column in np.argwhere(codes)}

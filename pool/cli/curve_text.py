"""The latency–throughput curve in a terminal: lines of Braille dots, p50 and p99 over goodput, latency in decades."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil, floor, isnan, log10

from rich.text import Text

from pool.cli.curve import Curve
from pool.cli.tables import numeric

__all__ = ["drawn"]

HEIGHT = 18
MARGIN = 8  # for the labels of the latency
LEAST_WIDTH = 24  # of the plot itself

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a character, by line and column
_LINES = (("p99", "●", "red"), ("p50", "○", "cyan"))


class _Canvas:
    """`width` × `height` characters. Places are fractions of both, from the lower left."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._dots = [[0] * width for _ in range(height)]
        self._signs: dict[tuple[int, int], tuple[str, str]] = {}
        self._styles: dict[tuple[int, int], str] = {}

    def cell(self, x: float, y: float) -> tuple[int, int]:
        return round((1 - y) * (self.height - 1)), round(x * (self.width - 1))

    def sign(self, x: float, y: float, sign: str, style: str) -> None:
        self._signs[self.cell(x, y)] = sign, style

    def column(self, x: float, sign: str, style: str) -> None:
        for line in range(self.height):
            self._signs.setdefault((line, self.cell(x, 0)[1]), (sign, style))

    def line(self, start: tuple[float, float], end: tuple[float, float], style: str) -> None:
        (left, low), (right, high) = (self._dot(place) for place in (start, end))
        steps = max(abs(right - left), abs(high - low), 1)
        for step in range(steps + 1):
            x, y = left + round((right - left) * step / steps), low + round((high - low) * step / steps)
            line, column = y // 4, x // 2
            self._dots[line][column] |= _DOTS[y % 4][x % 2]
            self._styles[line, column] = style

    def _dot(self, place: tuple[float, float]) -> tuple[int, int]:
        """In the middle of its character, so that a line leads to the sign there."""
        line, column = self.cell(*place)
        return 2 * column, 4 * line + 1

    def rows(self) -> Iterator[Text]:
        for line in range(self.height):
            text = Text()
            for column in range(self.width):
                dots = self._dots[line][column]
                drawn = (chr(_BRAILLE | dots), self._styles[line, column]) if dots else (" ", "")
                sign = self._signs.get((line, column))
                # A line is not lost behind the column of the capacity; a point is never.
                text.append(*(drawn if sign is None or (dots and sign[0] == "┊") else sign))
            yield text


def drawn(curve: Curve, width: int) -> Text:
    """A picture of `width` columns, legible without colours too; of nothing where nothing was answered."""
    answered = [point for point in curve.points if not isnan(point.p50_s)]
    most = curve.most
    if not most:
        return Text()
    canvas = _Canvas(max(LEAST_WIDTH, width - MARGIN - 2), HEIGHT)
    low, high = _decades([latency for point in answered for latency in (point.p50_s, point.p99_s)])

    def height(latency_s: float) -> float:
        return (log10(max(latency_s * 1000, 1e-6)) - low) / (high - low)

    for name, sign, color in _LINES:
        places = [(point.goodput / most, height(point.p99_s if name == "p99" else point.p50_s)) for point in answered]
        for start, stop in pairwise(places):
            canvas.line(start, stop, color)
        for place in places:
            canvas.sign(*place, sign, color)
    canvas.column(1.0, "┊", "green")
    decades = {canvas.cell(0, (decade - low) / (high - low))[0]: decade for decade in range(low, high + 1)}
    limit = curve.limit(numeric(most))
    legend = _legend()
    text = Text(f"{'ms':>{MARGIN}}  ").append_text(legend).append(limit.rjust(canvas.width - len(legend)), "green")
    for line, row in enumerate(canvas.rows()):
        label = f"{10.0 ** decades[line]:,g}" if line in decades else ""
        text.append(f"\n{label:>{MARGIN}} {'┤' if label else '│'}", "dim").append_text(row)
    text.append(f"\n{'':>{MARGIN}} └{'─' * canvas.width}", "dim")
    text.append(f"\n{'':>{MARGIN}} 0", "dim")
    end = numeric(most)
    return text.append(f"{curve.goodput:^{canvas.width - len(end)}}{end}")


def _legend() -> Text:
    text = Text()
    for name, sign, color in _LINES:
        text.append(f"{sign} {name}  ", color)
    return text


def _decades(latencies_s: Sequence[float]) -> tuple[int, int]:
    """The powers of ten, of milliseconds, between which all of them are; one at least."""
    shown = [log10(max(latency_s * 1000, 1e-6)) for latency_s in latencies_s]
    low, high = floor(min(shown)), ceil(max(shown))
    return low, max(high, low + 1)

"""A row of figures as a small chart: a block character each."""

from collections.abc import Sequence

__all__ = ["sparkline"]

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(figures: Sequence[float | None], width: int) -> str:
    """The last `width` of the figures, right-aligned. The largest that is shown is a full block.

    None, a figure that nobody knows, is a gap.
    """
    shown = list(figures)[-width:]
    full = max((figure for figure in shown if figure is not None), default=0.0) or 1.0
    top = len(BLOCKS) - 1
    return "".join(
        " " if figure is None else BLOCKS[min(top, max(0, round(figure / full * top)))] for figure in shown
    ).rjust(width)

"""A small grey image as text: two pixels a character, one over the other."""

from collections.abc import Sequence

from rich.text import Text

__all__ = ["picture"]

_UPPER, _LOWER, _BOTH = "▀", "▄", "█"
_DARKEST, _GREYS = 232, 23  # the grey ramp of the 256 colours


def picture(pixels: Sequence[float], side: int, brightest: float, *, shades: bool) -> Text:
    """`side` × `side` pixels in rows, as `side` columns and half as many lines.

    With `shades` a pixel is one of 24 greys, where the terminal has them; otherwise it is there or not.
    """
    levels = [min(max(pixel / brightest, 0.0), 1.0) for pixel in pixels]
    text = Text()
    for top in range(0, side, 2):
        if top:
            text.append("\n")
        for column in range(side):
            upper, lower = levels[top * side + column], levels[(top + 1) * side + column]
            if shades:
                text.append(_UPPER, f"{_grey(upper)} on {_grey(lower)}")
            else:
                text.append(_sign(upper >= 0.4, lower >= 0.4))
    return text


def _grey(level: float) -> str:
    return f"color({_DARKEST + round(level * _GREYS)})"


def _sign(upper: bool, lower: bool) -> str:
    if upper and lower:
        return _BOTH
    return _UPPER if upper else _LOWER if lower else " "

"""`pool demo`: a whole pool, seen once from beginning to end."""

import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pool.config import demo_folder
from pool.terminal import count_of, percent, plain_console, progress_console, show

if TYPE_CHECKING:
    from pool import EmbeddedPool

__all__ = ["demo", "picture"]

MODEL = "digits"
SIDE, BRIGHTEST = 8, 16  # the images of scikit-learn's digits
CARD = SIDE + 4
_UPPER, _LOWER, _BOTH = "▀", "▄", "█"
_DARKEST, _GREYS = 232, 23  # the grey ramp of the 256 colours


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said of one sample, and the truth."""

    pixels: Sequence[float]
    truth: int
    label: int
    probability: float
    latency_s: float


@click.command()
def demo() -> None:
    """Start a pool with the built-in model, show it some digits, stop it."""
    from pool import start  # `pool demo --help` needs none of it

    samples = json.loads(Path(demo_folder() / "samples.json").read_text())
    console = progress_console()
    began = time.monotonic()
    click.echo("Starting a pool with the built-in model: handwritten digits.")
    with console.status("each worker is a process, imports TensorFlow and loads the model …"):
        pool = start()
    with pool:
        _introduce(pool, time.monotonic() - began)
        with console.status("asking …"):
            answers = [_ask(pool, sample) for sample in samples]
        _show(answers)
        click.echo("Stopping the pool.")
    right = sum(answer.label == answer.truth for answer in answers)
    median = statistics.median(answer.latency_s for answer in answers) * 1000
    click.echo(
        f"{right} of {len(answers)} right ({percent(right / len(answers))}), {median:.1f} ms per answer (median)"
    )
    click.echo("Next: `pool start` serves the same model until Ctrl-C.")


def _introduce(pool: "EmbeddedPool", seconds: float) -> None:
    slots = [slot for slot in pool.status().slots if slot.state == "READY"]
    click.echo(f"Ready after {seconds:.1f} s: {count_of(len(slots), 'worker')}.")
    for slot in slots:
        named = "" if slot.device_name.lower() == slot.device.partition(":")[0] else f" ({slot.device_name})"
        click.echo(f"  slot {slot.slot} on {slot.device}{named}, pid {slot.pid}")
    click.echo()


def _ask(pool: "EmbeddedPool", sample: Mapping[str, Any]) -> Answer:
    began = time.perf_counter()
    answer = pool.run(MODEL, {"pixels": [sample["pixels"]]})
    latency_s = time.perf_counter() - began
    label = int(answer["label"][0])
    return Answer(sample["pixels"], sample["label"], label, float(answer["probabilities"][0][label]), latency_s)


def _show(answers: Sequence[Answer]) -> None:
    """As many pictures side by side as the terminal has room for."""
    console = plain_console()
    shades = console.color_system in ("256", "truecolor") and not console.no_color
    across = max(1, min(console.width, 80) // CARD)
    for first in range(0, len(answers), across):
        row = Table.grid(padding=(0, CARD - SIDE, 0, 0))
        row.add_row(*(_card(answer, shades) for answer in answers[first : first + across]))
        show(row)
        click.echo()


def _card(answer: Answer, shades: bool) -> RenderableType:
    verdict = Text("✓", "green") if answer.label == answer.truth else Text(f"✗ {answer.truth}", "red")
    line = Text(f"{answer.label} ", "bold").append_text(verdict)
    chance = Text(percent(answer.probability), "dim")
    return Group(picture(answer.pixels, SIDE, BRIGHTEST, shades=shades), line, chance)


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

"""What the commands have in common: their options, and what a person reads. A pipe gets neither colours nor cuts."""

import json
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import pool
from pool.log import printable

endpoint_option = click.option(
    "--endpoint", metavar="ADDRESS", help="The pool's ipc://… address. Default: $POOL_ENDPOINT, else your own pool."
)
config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Default: config.toml in this folder, if there is one; else the demo model.",
)
Texts = tuple[str, ...]
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def with_client(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command, as its first argument, a client of the pool that --endpoint names."""

    @endpoint_option
    @wraps(command)
    def run(endpoint: str | None, **given: Any) -> Any:
        with pool.Client(endpoint) as client:
            return command(client, **given)

    return run


def echo_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, default=list))


def console() -> Console:
    """Nothing in a text is markup."""
    return Console(highlight=False, markup=False, emoji=False)


def table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A title that begins with ">" is of a column of numbers. What is too long goes on in the cell's next line."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        is_number = title.startswith(">")
        made.add_column(title.lstrip(">"), justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    for row in rows:
        made.add_row(*(cell if hasattr(cell, "__rich_console__") else printable(str(cell)) for cell in row))
    return made


def span(seconds: float | None) -> str:
    """A duration in at most 7 characters: "0.8 ms", "12 s", "3 h"."""
    if seconds is None:
        return "–"
    units = ((172_800, 86_400, "days"), (7200, 3600, "h"), (120, 60, "min"), (0.9995, 1, "s"), (0, 0.001, "ms"))
    unit_s, unit = next((unit_s, unit) for least, unit_s, unit in units if seconds >= least)
    number = seconds / unit_s
    return f"{number:.{1 if number < 9.95 and unit_s <= 1 else 0}f} {unit}"

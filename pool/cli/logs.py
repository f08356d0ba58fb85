"""`pool logs`: the last lines of a running pool's log, wherever the log itself goes."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import click

from pool import Client
from pool.cli.options import IMPATIENT, endpoint_option
from pool.logs import Entry, Field, as_json_line, for_people, wants_colour
from pool.wire.records import LogLine

__all__ = ["logs"]

LOOK_S = 0.3


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with each new line, until Ctrl-C.")
@click.option(
    "-n", "--lines", "count", type=click.IntRange(0), default=100, show_default=True, help="How many at first."
)
@click.option("--json", "as_json", is_flag=True, help="Print one object a line, as --log-format json does.")
@endpoint_option
def logs(follow: bool, count: int, as_json: bool, endpoint: str | None) -> None:
    """Show the last lines of the pool's log. The pool keeps about a thousand of them, wherever its log goes.

    Only on the pool's machine.
    """
    line = as_json_line if as_json else partial(for_people, colour=sys.stdout.isatty() and wants_colour(os.environ))
    with contextlib.suppress(KeyboardInterrupt), Client(endpoint, **IMPATIENT) as client:
        found = client.logs()
        told: list[LogLine] = []
        while found.lines:
            told += found.lines
            found = client.logs(found.last)
        _print(told[-count:] if count else [], line)
        while follow:
            time.sleep(LOOK_S)
            found = client.logs(found.last)
            _print(found.lines, line)


def _print(told: Sequence[LogLine], line: Callable[[Entry], str]) -> None:
    for each in told:
        click.echo(
            line(Entry(each.time_s, each.level, each.event, each.message, cast(Mapping[str, Field], each.fields))),
            nl=False,
        )

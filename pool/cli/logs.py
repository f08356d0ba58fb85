"""`pool logs`: the last lines of a running pool's log, wherever the log itself goes."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import click

from pool import Client
from pool.cli.options import IMPATIENT, endpoints_option
from pool.cli.pools import is_of_several, one_pool, show_each
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
@endpoints_option
def logs(follow: bool, count: int, as_json: bool, endpoints: tuple[str, ...]) -> None:
    """Show the last lines of the pool's log. The pool keeps about a thousand of them, wherever its log goes.

    Only on the pool's machine. Of several pools, each is asked; --follow is for one.
    """
    line = as_json_line if as_json else partial(for_people, colour=sys.stdout.isatty() and wants_colour(os.environ))
    if follow:
        one_pool(endpoints, "`pool logs --follow`")

    def ask(client: Client) -> tuple[list[LogLine], int]:
        found = client.logs()
        told: list[LogLine] = []
        while found.lines:
            told += found.lines
            found = client.logs(found.last)
        return told[-count:] if count else [], found.last

    def values(told: tuple[list[LogLine], int]) -> object:
        return [json.loads(as_json_line(_entry(each))) for each in told[0]]

    with contextlib.suppress(KeyboardInterrupt), Client(endpoints or None, **IMPATIENT) as client:
        as_one = values if as_json and is_of_several(client) else None
        [(_, last), *_] = show_each(client, ask, lambda told: _print(told[0], line), as_one)
        while follow:
            time.sleep(LOOK_S)
            found = client.logs(last)
            _print(found.lines, line)
            last = found.last


def _print(told: Sequence[LogLine], line: Callable[[Entry], str]) -> None:
    for each in told:
        click.echo(line(_entry(each)), nl=False)


def _entry(told: LogLine) -> Entry:
    return Entry(told.time_s, told.level, told.event, told.message, cast(Mapping[str, Field], told.fields))

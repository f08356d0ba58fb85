"""Options that several commands share, and what they mean."""

import json
import os
from pathlib import Path
from typing import Any

import click

from pool.endpoint import NAME

__all__ = [
    "CONFIG",
    "IMPATIENT",
    "as_json",
    "config_option",
    "endpoint_option",
    "input_option",
    "name_option",
    "print_json",
    "signature_option",
    "timeout_option",
]

# Of a `Client`: a question about what runs is not worth a longer wait for it.
IMPATIENT: dict[str, Any] = {"connect_timeout": 2.0, "reconnect_timeout": 0.0}

endpoint_option = click.option(
    "--endpoint",
    "--name",
    "endpoint",
    metavar="URL|NAME",
    help="The pool: its name, ipc://… or tcp://HOST:PORT. Default: $POOL_ENDPOINT, else your own, else the machine's.",
)


def _a_name(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    if given is not None and NAME.fullmatch(given) is None:
        raise click.BadParameter(f"{given!r} is not a name; write letters, digits, '_', '.' and '-'")
    return given


name_option = click.option(
    "--name", metavar="NAME", callback=_a_name, help="One of several pools; clients give the same --name."
)

CONFIG = Path("config.toml")


def _found(_context: click.Context, _option: click.Parameter, given: Path | None) -> Path | None:
    """Anything of that name counts: a link to nowhere is a mistake to tell, not a reason to serve the demo."""
    return CONFIG if given is None and os.path.lexists(CONFIG) else given


config_option = click.option(
    "--config",
    "config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    callback=_found,
    help="Default: config.toml in this folder, else the built-in demo.",
)

timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=1800.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait. What was begun goes on afterwards.",
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")

signature_option = click.option("--signature", metavar="NAME", help="Default: serving_default, or the only one.")

input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]VALUE",
    help="One input; may be repeated. NAME may be left out if the model has one input.",
)


def print_json(found: object, indent: int | None = 2) -> None:
    """What `--json` asks for; one line where `indent` is None, for several in turn."""
    click.echo(json.dumps(found, indent=indent))

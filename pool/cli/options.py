"""Options that several commands share, and what they mean."""

import json
import logging
import os
from collections.abc import Callable
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
    "endpoints_option",
    "gateway_config_option",
    "input_option",
    "log_options",
    "lone_endpoint_option",
    "name_option",
    "print_json",
    "signature_option",
    "timeout_option",
]

# Of a `Client`: a question about what runs is not worth a longer wait for it.
IMPATIENT: dict[str, Any] = {"connect_timeout": 2.0, "reconnect_timeout": 0.0}

_POOL = "its name, ipc://… or tcp://HOST:PORT. Default: $POOL_ENDPOINT, else your own, else the machine's."

endpoint_option = click.option("--endpoint", "--name", "endpoint", metavar="URL|NAME", help=f"The pool: {_POOL}")


def _endpoints_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Two in any case: of a command that is about one pool, the second is refused, and not the first forgotten."""
    return click.option("--endpoint", "--name", "endpoints", multiple=True, metavar="URL|NAME", help=text)


endpoints_option = _endpoints_option(f"The pool: {_POOL} May be repeated, for several pools.")
lone_endpoint_option = _endpoints_option(f"The pool: {_POOL}")


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


def _config_option(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--config",
        "config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        callback=_found,
        help=default,
    )


config_option = _config_option("Default: config.toml in this folder, else the built-in demo.")
gateway_config_option = _config_option("Its [gateway] is used. Default: config.toml in this folder, if there is one.")

LEVELS = ("debug", "info", "warning", "error")


def _level(_context: click.Context, _option: click.Parameter, given: str) -> int:
    return logging.getLevelNamesMapping()[given.upper()]


def log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Of a command that serves: `log_level`, one of logging's numbers, and `log_format`."""
    level = click.option(
        "--log-level",
        type=click.Choice(LEVELS),
        default="info",
        show_default=True,
        callback=_level,
        help="The least level that is logged. debug also shows the fields of each line.",
    )
    form = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Format of the log on standard error. json writes one object per line, with all fields.",
    )
    return level(form(command))


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

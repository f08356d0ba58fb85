"""Options that several commands share, and what they mean."""

import json
from pathlib import Path
from typing import Any

import click

__all__ = [
    "IMPATIENT",
    "as_json",
    "config_option",
    "endpoint_option",
    "input_option",
    "print_json",
    "signature_option",
    "timeout_option",
]

# Of a `Client`: a question about what runs is not worth a longer wait for it.
IMPATIENT: dict[str, Any] = {"connect_timeout": 2.0, "reconnect_timeout": 0.0}

endpoint_option = click.option(
    "--endpoint", metavar="URL", help="ipc://… or tcp://HOST:PORT. Default: $POOL_ENDPOINT, else the local pool."
)

config_option = click.option(
    "--config",
    "config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A config.toml. Default: serve the built-in demo model.",
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

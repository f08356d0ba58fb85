"""What the commands that ask a pool, or read a configuration, have in common."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pool import Client
    from pool.config import Config

__all__ = ["as_json", "config_option", "connect", "echo_json", "endpoint_option", "read_config"]

CONFIG = Path("config.toml")

endpoint_option = click.option(
    "--endpoint", metavar="ADDRESS", help="The pool's ipc://… address. Default: $POOL_ENDPOINT, else your own pool."
)
config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Default: config.toml in this folder, if there is one; else the demo model.",
)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def connect(endpoint: str | None) -> "Client":
    from pool import Client

    return Client(endpoint)


def read_config(given: Path | None) -> tuple[Path | None, "Config"]:
    from pool.config import load

    path = given or (CONFIG if CONFIG.is_file() else None)
    return path and path.absolute(), load(path)


def echo_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, default=list))

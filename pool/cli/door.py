"""`pool door`, which serves HTTP and gRPC, and `pool token new`, which lets somebody in."""

import json
import sys
from pathlib import Path

import click

from pool.cli.local import read_config
from pool.cli.screen import config_option, endpoint_option
from pool.errors import InvalidConfig


@click.command()
@config_option
@endpoint_option
@click.option("--parent", type=int, hidden=True, help="The pid of the pool that the door ends with.")
def door(config: Path | None, endpoint: str | None, parent: int | None) -> int:
    """Serve HTTP and gRPC at the addresses of [door], in front of a pool that runs or comes.

    `pool start` does that by itself, where [door] has an address. Several doors may stand before one pool.
    """
    from pool.config.sections import Door
    from pool.door.server import run

    if parent is not None:  # which gives what it has checked, and not what the file may have become
        return run(Door.model_construct(**json.load(sys.stdin)), endpoint, parent)
    return run(read_config(config)[1].door, endpoint, None)


@click.group()
def token() -> None:
    """Manage the tokens that callers of the door show."""


@token.command("new")
@click.argument("name")
@config_option
def new_token(name: str, config: Path | None) -> None:
    """Make a token for NAME and print it. The file of [door] tokens keeps its digest; an older one of NAME ends."""
    from pool.door.tokens import new

    path = read_config(config)[1].door.tokens
    if path is None:
        raise InvalidConfig('[door] has no tokens; write such as tokens = "tokens.txt"')
    click.echo(new(Path(path), name))

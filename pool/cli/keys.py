"""`pool keys new`: keys for a pool that other machines reach, and for its clients."""

import os
from pathlib import Path

import click

from pool.cli.group import Group
from pool.errors import InvalidConfig
from pool.keys import make_pair, profiles_path

__all__ = ["keys"]


@click.group(cls=Group)
def keys() -> None:
    """Make keys for a pool that other machines reach, and for its clients; see `pool help remote`."""


@keys.command()
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Where to write them. Default: ~/.config/pool/keys, or in $XDG_CONFIG_HOME.",
)
def new(name: str, folder: Path | None) -> None:
    """Make a key: NAME.key, which others may know, and NAME.key_secret, which only its owner may have.

    A client gives NAME.key to who runs the pool, and gets the pool's public key. Nothing is sent anywhere.
    """
    chosen = folder or profiles_path(os.environ).with_name("keys")
    try:
        public, secret = make_pair(chosen, name)
    except OSError as error:
        raise InvalidConfig(f"{error.filename or chosen}: {error.strerror}; choose another --folder") from None
    click.echo(public)
    click.echo(secret)
    click.echo(f"{secret} is secret: only its owner may have it", err=True)

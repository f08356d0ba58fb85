"""The commands that change what a running pool serves: `reload`, `load`, `unload`, `restart`, `drain`, `undrain`.

None of them loses a job. Each waits until the pool has come there, and shows what is done meanwhile.
"""

import asyncio
import tomllib
from collections.abc import Awaitable, Callable
from typing import Any

import click

import pool
from pool.cli.screen import endpoint_option

LOOKED_AT_S = 0.3

slot_argument = click.argument("slot", type=int)


@click.command()
@endpoint_option
def reload(endpoint: str | None) -> None:
    """Read the configuration file again, and have each slot follow it, one after the other.

    What does not come up is taken back. [pool] and [[device]] need a new pool.
    """
    follow(endpoint, lambda client: client.reload())


@click.command()
@click.argument("name")
@click.argument("path")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A key of [[model]]; may be repeated.")
@endpoint_option
def load(name: str, path: str, settings: tuple[str, ...], endpoint: str | None) -> None:
    """Serve one more model, or another one in the place of NAME, until the next reload.

    \b
    pool load digits models/digits --set max_batch=64 --set devices=[0]
    """
    keys: dict[str, Any] = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not equals:
            raise click.UsageError(f"--set {each}: write KEY=VALUE")
        try:
            keys[key] = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            keys[key] = value
    follow(endpoint, lambda client: client.load(name, path, **keys))


@click.command()
@click.argument("name")
@endpoint_option
def unload(name: str, endpoint: str | None) -> None:
    """Serve a model no more, until the next reload. Jobs that wait for it run first."""
    follow(endpoint, lambda client: client.unload(name))


@click.command()
@click.argument("slot", type=int, required=False)
@endpoint_option
def restart(slot: int | None, endpoint: str | None) -> None:
    """Start a new worker for SLOT, or for each slot, one after the other.

    It starts beside the old one where the device has the memory, and takes over once it is ready.
    """
    follow(endpoint, lambda client: client.restart(slot))


@click.command()
@slot_argument
@endpoint_option
def drain(slot: int, endpoint: str | None) -> None:
    """Let the worker of SLOT finish what it runs, and end. Its models go to other slots, if they fit there."""
    follow(endpoint, lambda client: client.drain(slot))


@click.command()
@slot_argument
@endpoint_option
def undrain(slot: int, endpoint: str | None) -> None:
    """Use a drained SLOT again."""
    follow(endpoint, lambda client: client.undrain(slot))


def follow(endpoint: str | None, ask: Callable[["pool.AsyncClient"], Awaitable[Any]]) -> None:
    async def run() -> None:
        async with pool.AsyncClient(endpoint) as client:
            change = asyncio.ensure_future(ask(client))
            shown: list[str] = []
            while not (await asyncio.wait([change], timeout=LOOKED_AT_S))[0]:
                for line in [line for each in (await client.status())["changes"] for line in each["lines"]]:
                    if line not in shown:
                        shown.append(line)
                        click.echo(line, err=True)
            for line in change.result()["lines"]:
                if line not in shown:
                    click.echo(line, err=True)
            click.echo("done")

    asyncio.run(run())

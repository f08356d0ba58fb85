"""The commands that change what a running pool serves: `reload`, `load`, `unload`, `restart`, `drain`, `undrain`.

None of them loses a job. Each waits until the pool has come there, and shows what is done meanwhile.
"""

import asyncio
import tomllib
from typing import Any

import click

import pool
from pool.cli.screen import endpoint_option

LOOKED_AT_S = 0.3


def change(name: str, about: str, *arguments: click.Parameter) -> click.Command:
    """A command that asks for what the client's method of its name does."""

    def run(endpoint: str | None, **given: Any) -> None:
        asyncio.run(follow(endpoint, name, given))

    return endpoint_option(click.Command(name, callback=run, params=[*arguments], help=about))


async def follow(endpoint: str | None, name: str, given: dict[str, Any]) -> None:
    async with pool.AsyncClient(endpoint) as client:
        asked = asyncio.ensure_future(getattr(client, name)(**given))
        shown: list[str] = []
        is_done = False
        while not is_done:
            is_done = bool((await asyncio.wait([asked], timeout=LOOKED_AT_S))[0])
            changes = [asked.result()] if is_done else (await client.status())["changes"]
            for line in [line for each in changes for line in each["lines"]]:
                if line not in shown:
                    shown.append(line)
                    click.echo(line, err=True)
        click.echo("done")


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
    given: dict[str, Any] = {"name": name, "path": path}
    for each in settings:
        key, equals, value = each.partition("=")
        if not equals:
            raise click.UsageError(f"--set {each}: write KEY=VALUE")
        try:
            given[key] = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            given[key] = value
    asyncio.run(follow(endpoint, "load", given))


NAME, SLOT = click.Argument(["name"]), click.Argument(["slot"], type=int)
reload = change(
    "reload",
    "Read the configuration file again, and have each slot follow it, one after the other.\n\n"
    "What does not come up is taken back. [pool] and [[device]] need a new pool.",
)
unload = change("unload", "Serve a model no more, until the next reload. Jobs that wait for it run first.", NAME)
restart = change(
    "restart",
    "Start a new worker for SLOT, or for each slot, one after the other.\n\n"
    "It starts beside the old one where the device has the memory, and takes over once it is ready.",
    click.Argument(["slot"], type=int, required=False),
)
drain = change(
    "drain",
    "Let the worker of SLOT finish what it runs, and end. Its models go to other slots, if they fit there.",
    SLOT,
)
undrain = change("undrain", "Use a drained SLOT again.", SLOT)

"""The commands that ask a pool to do something, or to serve something else.

None of those that change what it serves loses a job. Each waits until the pool has come there, and shows what is done.
"""

import asyncio
import os
import select
import time
import tomllib
from contextlib import suppress
from typing import Any

import click

import pool
from pool.cli.screen import Texts, as_json, echo_json, endpoint_option, with_client
from pool.errors import DeadlineExceeded, PoolError, PoolUnreachable

LOOKED_AT_S = 0.5  # between two looks for a pool, or for new lines of it


@click.command()
@click.argument("model")
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="For each input; see above.")
@click.option("--signature", metavar="NAME", help="Default: serving_default, or the only one.")
@click.option("--output", "outputs", multiple=True, metavar="NAME", help="Return only this output; may be repeated.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Default: the pool's.")
@as_json
@with_client
def submit(
    client: "pool.Client", model: str, inputs: Texts, signature: str | None, as_json: bool, outputs: Texts, **more: Any
) -> None:
    """Run MODEL once and print its outputs.

    \b
    VALUE is one of
      [1, 2, 3]  3.5  "text"   JSON
      any text                 itself, for a string input
      @FILE                    .npy is loaded, .json parsed; any other file
                               is its bytes, for a string input
      -                        standard input

    A value of one rank less than its input is a batch of one. NAME= may be left out where there is one input.

    \b
    pool submit digits --input pixels=@seven.json
    """
    from pool.cli.values import as_json_values, as_text, read_inputs
    from pool.client.inputs import Request, chosen, signatures_of

    values = read_inputs(inputs, chosen(Request(model, signature), signatures_of(client.model(model))).inputs)
    result = client.run(model, values, signature=signature, outputs=outputs or None, **more)
    if as_json:
        echo_json({"outputs": as_json_values(result), "device": result.device, "slot": result.slot})
    else:
        click.echo("\n".join(as_text(name, array) for name, array in result.items()))


@click.command()
@with_client
def stop(client: "pool.Client") -> None:
    """Stop the pool, and wait until it has ended.

    Running jobs finish first, for [pool] drain_timeout at most. Jobs that wait go back to their clients.
    """
    process = os.pidfd_open(client.status()["pool"]["pid"])
    client.stop()
    shown = ""
    while not select.select([process], [], [], LOOKED_AT_S)[0]:
        with suppress(PoolError):  # it may end at any time
            running = sum(model["running"] for model in client.status()["models"])
            if shown != (shown := f"jobs that still run: {running}"):
                click.echo(shown, err=True)


@click.command()
@click.option("--model", metavar="NAME", help="Wait for this model alone.")
@click.option("--timeout", type=click.FloatRange(0), default=600.0, show_default=True, metavar="SECONDS")
@endpoint_option
def wait(model: str | None, timeout: float, endpoint: str | None) -> None:
    """Wait until the pool serves all of its models. It need not have started yet."""
    line, shown, until = "", "", time.monotonic() + timeout
    while True:
        left_s = until - time.monotonic()
        try:
            with pool.Client(endpoint) as client:
                line = readiness(client)
                client.wait_ready(max(0.0, min(left_s, LOOKED_AT_S)), model)
                click.echo(readiness(client))
                return
        except (DeadlineExceeded, PoolUnreachable) as error:
            if left_s < 0:
                raise
            if shown != (shown := line if isinstance(error, DeadlineExceeded) else "there is no pool yet"):
                click.echo(shown, err=True)
            time.sleep(LOOKED_AT_S)


@click.command()
@with_client
def health(client: "pool.Client") -> None:
    """Say in one line whether the pool serves. Exit status 0 only if each model is READY in a slot."""
    line = readiness(client)
    if not client.is_ready():
        raise PoolError(f"not ready: {line}")
    click.echo(line)


def readiness(client: "pool.Client") -> str:
    record = client.status()
    slots = [slot["state"] == "READY" for slot in record["slots"]]
    models = [model["state"] == "READY" for model in record["models"]]
    served = f"{sum(models)} of {len(models)} models served"
    return f"{record['pool']['state']}: {sum(slots)} of {len(slots)} slots ready, {served}"


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with each new line, until Ctrl-C.")
@with_client
def logs(client: "pool.Client", follow: bool) -> None:
    """Print the pool's log: the last thousand lines of it are kept."""
    since = 0
    while (answer := client.logs(since))["lines"] or follow:
        click.echo("".join(f"{text}\n" for _, text in answer["lines"]), nl=False)
        time.sleep(0 if answer["lines"] else LOOKED_AT_S)
        since = answer["next"]


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
ANY_SLOT = click.Argument(["slot"], type=int, required=False)
reload = change("reload", "Follow the configuration file, slot by slot. What does not come up is taken back.")
unload = change("unload", "Serve a model no more, until the next reload. Jobs that wait for it run first.", NAME)
restart = change("restart", "New workers for SLOT, or for all in turn; beside the old ones if memory allows.", ANY_SLOT)
drain = change("drain", "Let the worker of SLOT finish, and end. Its models go to other slots if they fit.", SLOT)
undrain = change("undrain", "Use a drained SLOT again.", SLOT)

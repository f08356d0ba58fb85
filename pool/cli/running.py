"""`pool start`, `stop`, `wait`, `health` and `logs`: a pool from its start to its end."""

import os
import select
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pool.cli.asking import config_option, connect, endpoint_option, read_config
from pool.cli.screen import counted
from pool.errors import PoolError, PoolUnreachable

if TYPE_CHECKING:
    from pool import Client

__all__ = ["health", "logs", "start", "stop", "wait"]

DEMO = Path(__file__).parents[2] / "workers" / "demo"
LOOKED_AT_S = 0.5  # between two looks for a pool, or for new lines of its log


@click.command()
@config_option
@click.option("--embedded", type=int, hidden=True, help="A descriptor; the pool stops at its end of file.")
def start(config: Path | None, embedded: int | None) -> int:
    """Run a pool until Ctrl-C, `pool stop` or SIGTERM.

    Running jobs finish first, for [pool] drain_timeout at most. A second Ctrl-C ends the pool at once.
    """
    from pool.serve.start import run

    path, settings = read_config(config)
    if embedded is None:
        click.echo(f"configuration: {path or 'none'}", err=True)
        if settings.model[0].path == str(DEMO / "digits"):
            program = os.path.relpath(sys.argv[0]) if sys.argv[0].endswith("/pool") else "pool"
            image = os.path.relpath(DEMO / "seven.json")
            click.echo(f"next, in another terminal: {program} submit digits --input pixels=@{image}", err=True)
    return run(settings, embedded)


@click.command()
@click.option("--timeout", type=click.FloatRange(0), default=120.0, show_default=True, metavar="SECONDS")
@endpoint_option
def stop(timeout: float, endpoint: str | None) -> None:
    """Stop the pool, and wait until it has ended.

    Running jobs finish first, for [pool] drain_timeout at most. Jobs that wait end in an error.
    """
    with connect(endpoint) as client:
        process = os.pidfd_open(pid := client.status()["pool"]["pid"])
        client.stop()
    ended, _, _ = select.select([process], [], [], timeout)
    if not ended:
        raise PoolError(f"the pool (pid {pid}) still finishes jobs after {timeout:g} s; `pool status` shows them")


@click.command()
@click.option("--model", metavar="NAME", help="Wait for this model alone.")
@click.option("--timeout", type=click.FloatRange(0), default=600.0, show_default=True, metavar="SECONDS")
@endpoint_option
def wait(model: str | None, timeout: float, endpoint: str | None) -> None:
    """Wait until the pool serves all of its models. It need not have started yet."""
    until = time.monotonic() + timeout
    while True:
        try:
            with connect(endpoint) as client:
                client.wait_ready(max(0.0, until - time.monotonic()), model)
                click.echo(readiness(client))
                return
        except PoolUnreachable:
            if time.monotonic() > until:
                raise
            time.sleep(LOOKED_AT_S)


@click.command()
@endpoint_option
def health(endpoint: str | None) -> None:
    """Say in one line whether the pool serves. Exit status 0 only if each model is READY in a slot."""
    with connect(endpoint) as client:
        line = readiness(client)
        if not client.is_ready():
            raise PoolError(f"not ready: {line}")
        click.echo(line)


def readiness(client: "Client") -> str:
    record = client.status()
    slots = [slot["state"] == "READY" for slot in record["slots"]]
    models = [model["state"] == "READY" for model in record["models"]]
    served = f"{sum(models)} of {counted(len(models), 'model')} served"
    return f"{record['pool']['state']}: {sum(slots)} of {counted(len(slots), 'slot')} ready, {served}"


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with each new line, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), metavar="N", help="Only the last N lines of those kept.")
@endpoint_option
def logs(follow: bool, lines: int | None, endpoint: str | None) -> None:
    """Print the pool's log: the last thousand lines of it are kept."""
    with connect(endpoint) as client:
        kept: deque[str] = deque(maxlen=lines)
        since = 0
        while (answer := client.logs(since))["lines"]:
            since = answer["next"]
            kept.extend(text for _, text in answer["lines"])
        click.echo("".join(f"{text}\n" for text in kept), nl=False)
        while follow:
            answer = client.logs(since)
            since = answer["next"]
            click.echo("".join(f"{text}\n" for _, text in answer["lines"]), nl=False)
            time.sleep(LOOKED_AT_S)

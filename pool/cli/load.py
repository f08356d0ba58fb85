"""`pool load`, `pool unload`: one model more, or less, while the pool runs."""

import click

from pool import Client
from pool.cli.options import as_json, endpoint_option
from pool.cli.reload import await_roll, show_changes

__all__ = ["load", "unload"]

TIMEOUT_S = 900.0

wait_option = click.option("--wait/--no-wait", default=True, help="Until the slots have new workers, as by default.")
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=TIMEOUT_S,
    metavar="SECONDS",
    help="How long it is waited for.",
)


@click.command()
@click.argument("model")
@click.argument("path")
@wait_option
@timeout_option
@as_json
@endpoint_option
def load(model: str, path: str, wait: bool, timeout: float, as_json: bool, endpoint: str | None) -> None:
    """Serve one MODEL more, from PATH, in the pool that runs.

    It goes where it has room; the others stay where they are, if they can. Each slot that gets it has a new worker,
    without losing a job. If one does not come up with it, it is given up and all is as before: exit status 1. It lasts
    until the pool ends or it is unloaded; a reload keeps it, unless the file has a model of its name.
    """
    with Client(endpoint) as client:
        show_changes(client.load(model, path), as_json)
        if wait:
            await_roll(client, timeout)


@click.command()
@click.argument("model")
@wait_option
@timeout_option
@as_json
@endpoint_option
def unload(model: str, wait: bool, timeout: float, as_json: bool, endpoint: str | None) -> None:
    """Serve MODEL no more, and give its memory back: its workers are replaced by such without it.

    What runs is finished. A reload brings it back, if the file names it.
    """
    with Client(endpoint) as client:
        show_changes(client.unload(model), as_json)
        if wait:
            await_roll(client, timeout)

"""`pool load`, `pool unload`: one model more, or less, while the pool runs."""

import click

from pool import Client
from pool.cli.names import ModelName
from pool.cli.options import as_json, lone_endpoint_option, timeout_option
from pool.cli.pools import one_pool
from pool.cli.reload import await_rolling_update, show_changes

__all__ = ["load", "unload"]

wait_option = click.option(
    "--wait/--no-wait", default=True, help="Return when the slots have new workers (the default)."
)


@click.command()
@click.argument("model")
@click.argument("path", default="")
@wait_option
@timeout_option
@as_json
@lone_endpoint_option
def load(model: str, path: str, wait: bool, timeout: float, as_json: bool, endpoints: tuple[str, ...]) -> None:
    """Add MODEL, read from PATH, to the running pool. Without PATH, MODEL is as the configuration file has it.

    The pool places it where there is room, and keeps the other models in place if it can. Each slot that gets MODEL
    gets a new worker; no job is lost. If a worker cannot load it, the exit status is 1, and the pool returns to its
    former plan. If only a further copy of a new MODEL cannot be loaded, the others serve, and the command says so.

    MODEL stays until the pool ends or you unload it. A reload keeps it, unless the file has a model of the same name.
    """
    with Client(one_pool(endpoints)) as client:
        show_changes(client.load(model, path, wait=False), as_json)
        if wait:
            await_rolling_update(client, timeout)


@click.command()
@click.argument("model", type=ModelName())
@wait_option
@timeout_option
@as_json
@lone_endpoint_option
def unload(model: str, wait: bool, timeout: float, as_json: bool, endpoints: tuple[str, ...]) -> None:
    """Remove MODEL from the running pool and free its memory: its workers are replaced by workers without it.

    Running jobs are finished. A reload brings MODEL back if the file names it.
    """
    with Client(one_pool(endpoints)) as client:
        show_changes(client.unload(model), as_json)
        if wait:
            await_rolling_update(client, timeout)

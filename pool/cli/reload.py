"""`pool reload`: what changed in `config.toml`, applied to the running pool."""

from collections.abc import Sequence

import click

from pool import Client
from pool.cli.cluster import ClusterCommand
from pool.cli.options import as_json, lone_endpoint_option, print_json, timeout_option
from pool.cli.pools import one_pool
from pool.cli.progress import progress
from pool.wire.readiness import left_out
from pool.wire.records import Changes

__all__ = ["await_rolling_update", "reload", "show_changes"]


@click.command(cls=ClusterCommand, rolling=True, adds=("--wait",))
@click.option("--wait", is_flag=True, help="Return when every slot has the new settings.")
@timeout_option
@lone_endpoint_option
@as_json
def reload(wait: bool, timeout: float, endpoints: tuple[str, ...], as_json: bool) -> None:
    """Make the pool read its config.toml again, and show what changed.

    If the file has a mistake, or a change that needs a new pool, the pool refuses all of it: exit status 2, and nothing
    changes. Settings that a running worker cannot take come with new workers, one slot after the other; no job is
    lost. If a worker does not start with the new settings, all slots return to the former ones.
    """
    with Client(one_pool(endpoints)) as client:
        found = client.reload()
        show_changes(found, as_json)
        if wait:
            await_rolling_update(client, timeout)


def show_changes(found: Changes, as_json: bool) -> None:
    """What a pool has told of its new settings."""
    if as_json:
        print_json(found.to_dict())
        return
    for change in found.changes:
        click.echo(change.line)
    if found.slots:
        click.echo(_new_workers(found.slots))
    elif not found.changes:
        click.echo("nothing changed")


def _new_workers(slots: Sequence[int]) -> str:
    if len(slots) == 1:
        return f"slot {slots[0]} gets a new worker"
    return f"slots {', '.join(map(str, slots))} get new workers, one after the other"


def await_rolling_update(client: Client, timeout_s: float) -> None:
    """Says which slots are without a model that they could not load. Raises as `wait_updated` does."""
    with progress() as say:
        client.wait_updated(timeout_s, on_wait=say)
    for line in left_out(client.status().unloadable):
        click.echo(line, err=True)

"""`pool start --ray`: pools on the machines of a Ray cluster, placed and awaited."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pool.cli.cluster import AUTO, connected, title
from pool.cli.failure import CommandFailed
from pool.cli.progress import Say, progress
from pool.config import Settings, load_settings
from pool.errors import DeadlineExceeded
from pool.terminal import count_of

if TYPE_CHECKING:
    from pool.cluster import Cluster, Kept

__all__ = ["place_on_ray"]

LOOK_S = 0.5
SETTLE_S = 3.0  # in which Ray has told all its nodes
LONGEST_S = 1800.0


def place_on_ray(config: Path | None, name: str | None, address: str) -> None:
    """Returns when each machine's pool is READY. `address`: it counts before that of `[cluster]`, unless it is "auto".

    Raises `CommandFailed` where one has failed; Ray's keeper goes on.
    """
    settings = Settings() if config is None else load_settings(config)
    cluster = settings.cluster
    if os.environ.get("RAY_AUTH_MODE") != "token":
        click.echo(
            "warning: anybody who reaches Ray's ports can run programs as its user; set RAY_AUTH_MODE=token, see"
            " `pool help cluster`",
            err=True,
        )
    with connected(cluster.address if address == AUTO else address) as ray, progress() as say:
        from pool.cluster import Placing, Wanted

        ray.place(
            Placing(
                config=None if config is None else str(config.absolute()),
                name=name or cluster.name,
                wanted=Wanted(cluster.nodes, cluster.gpus, cluster.labels),
                cpus=cluster.cpus,
                hung_after_s=cluster.hung_after,
            )
        )
        machines = _awaited(ray, say)
    failed = [each for each in machines if not each.serves]
    for each in machines:
        endpoints = ", ".join((each.told.endpoint, *each.told.remote)) if each.told else ""
        click.echo(f"{title(each)}: {each.reason or f'serves at {endpoints}'}", err=bool(each.reason))
    if not machines:
        click.echo("no machine fits [cluster] now; the first that joins gets a pool")
    if failed:
        raise CommandFailed(
            f"{len(failed)} of {count_of(len(machines), 'machine')} did not start a pool; each is tried again."
            " `pool status --cluster` shows them, `pool stop --cluster` ends them"
        )


def _awaited(cluster: "Cluster", say: Say) -> "Sequence[Kept]":
    """When each has a pool that serves, or has failed. Raises `DeadlineExceeded`."""
    began = time.monotonic()
    while (now := time.monotonic()) - began < LONGEST_S:
        machines = cluster.machines() or ()
        left = [each for each in machines if not each.serves and not each.reason]
        if not left and (machines or now - began > SETTLE_S):
            return machines
        say(
            "; ".join(
                f"{title(each)}: {each.told.waits_for if each.told else 'Ray starts it once its GPUs are free'}"
                for each in left
            )
        )
        time.sleep(LOOK_S)
    raise DeadlineExceeded(f"{count_of(len(left), 'machine')} did not start a pool within {LONGEST_S:g} s")

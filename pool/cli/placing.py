"""`pool start --ray`: pools on the machines of a Ray cluster, placed and awaited."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

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
    out = sys.stdout
    with connected(cluster.address if address == AUTO else address) as ray:
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
        machines = _told(ray, out)
    failed = [each for each in machines if not each.serves]
    if not machines:
        click.echo("no machine fits [cluster] now; the first that joins gets a pool")
    if failed:
        raise CommandFailed(
            f"{len(failed)} of {count_of(len(machines), 'machine')} did not start a pool; each is tried again."
            " `pool status --cluster` shows them, `pool stop --cluster` ends them"
        )


def _told(cluster: "Cluster", out: TextIO) -> "Sequence[Kept]":
    """Tells each machine as soon as its pool serves, or has failed. Returns when each does.

    Raises `DeadlineExceeded`.
    """
    began = time.monotonic()
    told: dict[str, bool] = {}
    """Of each node, whether its pool serves."""
    while True:
        with progress() as say:
            machines = _changed(cluster, told, began, say)
        for each in machines:
            if _is_news(each, told):
                told[each.node] = each.serves
                endpoints = ", ".join((each.told.endpoint, *each.told.remote)) if each.told else ""
                said = f"serves at {endpoints}" if each.serves else each.reason
                click.echo(f"{title(each)}: {said}", file=out if each.serves else sys.stderr)
        if all(map(_is_settled, machines)):
            return machines


def _changed(cluster: "Cluster", told: Mapping[str, bool], began: float, say: Say) -> "Sequence[Kept]":
    """When there is news of one, or all have been told. Raises `DeadlineExceeded`."""
    while (waited_s := time.monotonic() - began) < LONGEST_S:
        machines = cluster.machines() or ()
        left = [each for each in machines if not _is_settled(each)]
        is_over = not left and (machines or waited_s > SETTLE_S)
        if is_over or any(_is_news(each, told) for each in machines):
            return machines
        say(
            "; ".join(
                f"{title(each)}: {each.told.waits_for if each.told else 'Ray starts it once its GPUs are free'}"
                for each in left
            )
        )
        time.sleep(LOOK_S)
    raise DeadlineExceeded(f"{count_of(len(left), 'machine')} did not start a pool within {LONGEST_S:g} s")


def _is_settled(kept: "Kept") -> bool:
    return kept.serves or bool(kept.reason)


def _is_news(kept: "Kept", told: Mapping[str, bool]) -> bool:
    return _is_settled(kept) and told.get(kept.node) != kept.serves

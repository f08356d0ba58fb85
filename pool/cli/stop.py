"""`pool stop`"""

import contextlib
import os
import time

import click

from pool import Client
from pool.cli.cluster import cluster_option, connected
from pool.cli.failure import CommandFailed
from pool.cli.options import IMPATIENT, as_json, lone_endpoint_option, print_json, timeout_option
from pool.cli.pools import one_pool
from pool.cli.progress import progress
from pool.endpoint import endpoints as places_of
from pool.endpoint import holder, ipc_path
from pool.errors import DeadlineExceeded, PoolError, PoolUnreachable
from pool.terminal import count_of
from pool.wire.records import Status

__all__ = ["stop"]

LOOK_S = 0.1


@click.command()
@timeout_option
@lone_endpoint_option
@cluster_option
@as_json
def stop(timeout: float, endpoints: tuple[str, ...], cluster: str | None, as_json: bool) -> None:
    """Stop the pool after it has finished its jobs. Returns when it is gone.

    With --cluster: all pools that `pool start --ray` has placed, at once. None is placed again.
    """
    if cluster is not None:
        if endpoints:
            raise click.UsageError("--cluster and --endpoint are not for one command; leave one of them out")
        _stop_cluster(cluster, timeout, as_json)
        return
    endpoint = one_pool(endpoints)
    with Client(endpoint, **IMPATIENT) as client:
        is_far = client.endpoint.startswith("tcp://")
        pid = _stop_far(client, timeout) if is_far else _stop_here(endpoint, timeout)
    if as_json:
        print_json({"pid": pid})
    else:
        click.echo(f"stopped (pid {pid})")


def _stop_far(client: Client, timeout_s: float) -> int:
    """Over TCP its end is seen by its silence, or by the next one."""
    found = client.status()
    deadline = time.monotonic() + timeout_s
    client.stop()
    with progress() as say:
        while True:
            try:
                now = client.status()
            except PoolUnreachable:
                return found.pid
            if now.instance != found.instance:
                return found.pid
            if time.monotonic() >= deadline:
                raise _too_slow(found.pid, timeout_s)
            say(_left(now))
            time.sleep(LOOK_S)


def _stop_here(endpoint: str | None, timeout_s: float) -> int | None:
    """On this machine the lock of its endpoint tells of its end."""
    places = [ipc_path(each) for each in places_of(endpoint, os.environ, os.getuid())]
    path, pid = next(((each, pid) for each in places if (pid := holder(each)) is not None), (None, None))
    if path is None:
        raise PoolUnreachable(f"no pool runs at {' or '.join(f'ipc://{each}' for each in places)}")
    deadline = time.monotonic() + timeout_s
    with Client(f"ipc://{path}", reconnect_timeout=0.0) as client, progress() as say:
        client.stop()
        while holder(path) == pid:
            if time.monotonic() >= deadline:
                raise _too_slow(pid, timeout_s)
            with contextlib.suppress(PoolError):  # it may be gone by now
                say(_left(client.status()))
            time.sleep(LOOK_S)
    return pid


def _too_slow(pid: int | None, timeout_s: float) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"the pool (pid {pid}) is still stopping after {timeout_s:g} s; `pool status` shows what it waits for"
    )


def _stop_cluster(address: str, timeout_s: float, as_json: bool) -> None:
    """Raises `CommandFailed` where a pool did not end in time, or its actor said nothing, and was killed."""
    with connected(address) as cluster, progress() as say:
        say("stopping: the pools finish their jobs")
        machines = cluster.machines() or ()
        killed = cluster.stop(timeout_s)
    if as_json:
        print_json({"hosts": [each.host for each in machines], "killed": killed})
    else:
        click.echo(f"stopped ({count_of(len(machines), 'pool')})")
    if killed:
        why = f"they had not finished within {timeout_s:g} s, or said nothing"
        raise CommandFailed(f"killed, for {why}: {', '.join(killed)}")


def _left(found: Status) -> str:
    alive = [slot for slot in found.slots if slot.pid is not None]
    return f"stopping: {count_of(found.queue.jobs, 'job')} left, {count_of(len(alive), 'worker')}"

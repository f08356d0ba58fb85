"""`python -m pool.cluster ADDRESS`: tells its parent where the cluster's pools are, a line of JSON at each change.

A line has an endpoint for each pool's name. This machine's come first, by their Unix sockets. The process ends when its
standard input does, which its parent holds open, or when Ray ends it.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import ray

from pool.cluster.cluster import Cluster
from pool.cluster.keeper import Kept
from pool.errors import PoolError

LOOK_S = 1.0


def pools(machines: tuple[Kept, ...], host: str) -> dict[str, str]:
    """Endpoints by names that are the same on each machine. `host`: this machine's address.

    A pool whose socket another user may not open is reached as those of other machines are.
    """
    near: dict[str, str] = {}
    far: dict[str, str] = {}
    for kept in machines:
        if kept.known is None:
            continue
        name = f"{kept.host}/{Path(kept.known.endpoint).stem}"
        if kept.host == host and _may_open(kept.known.endpoint):
            near[name] = kept.known.endpoint
        elif kept.known.remote:
            far[name] = kept.known.remote[0]
    return near | far


def _may_open(endpoint: str) -> bool:
    """Its folder counts while the pool is away."""
    path = endpoint.removeprefix("ipc://")
    return os.access(path if os.path.exists(path) else os.path.dirname(path), os.W_OK)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main(address: str) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    said: dict[str, str] | None = None
    with Cluster(address) as cluster:
        while True:
            machines = cluster.machines()
            if machines is not None and (found := pools(machines, ray.util.get_node_ip_address())) != said:
                print(json.dumps(found), flush=True)  # noqa: T201  # the parent reads it
                said = found
            time.sleep(LOOK_S)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except PoolError as error:
        sys.exit(str(error))

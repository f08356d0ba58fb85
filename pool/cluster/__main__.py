"""`python -m pool.cluster ADDRESS`: tells its parent where the cluster's pools are, a line of JSON at each change.

A line has an endpoint for each pool's name. This machine's come first, by their Unix sockets. The process ends when its
standard input does, which its parent holds open, or when the cluster's head does not answer.
"""

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence

from pool.cluster.directory import Directory, Listed
from pool.errors import PoolError

LOOK_S = 1.0
HANGS_S = 60.0  # its parent starts another one


def pools(listed: Iterable[Listed]) -> dict[str, str]:
    """Endpoints by names that are the same on each machine."""
    seen = [(each.seen_from_here(), each) for each in listed]
    near = {each.name: endpoint for endpoint, each in seen if endpoint == each.endpoint}
    return near | {each.name: endpoint for endpoint, each in seen if endpoint and each.name not in near}


def silence(listed: Sequence[Listed]) -> str:
    """Why none of them is for this machine."""
    hosts = ", ".join(each.host for each in listed)
    return f"the pools on {hosts} are not to be reached from here; `listen` in [pool] is for other machines\n"


def _end_with_parent() -> None:
    while os.read(0, 4096):  # not `sys.stdin`: Python aborts where a thread waits in it at the end
        pass
    os._exit(0)


def main(address: str) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    said: dict[str, str] | None = None
    directory = Directory(address)
    while True:
        faulthandler.dump_traceback_later(HANGS_S, exit=True)
        listed = directory.read()
        if (found := pools(listed)) != said:
            sys.stderr.write(silence(listed) if listed and not found else "")
            print(json.dumps(found), flush=True)  # noqa: T201  # the parent reads it
            said = found
        time.sleep(LOOK_S)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except PoolError as error:
        sys.exit(str(error))

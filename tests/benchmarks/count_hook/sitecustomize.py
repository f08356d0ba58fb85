"""Counts what a process of the pool, of a worker or of a client calls, for `benchmarks.calls`.

Python imports this first where $PYTHONPATH has its folder. The counter is a file of 8 bytes in the folder that
$COUNT_INTO names, called after the process: `pool-123`. $COUNT_WHAT is `calls`, of Python and of C functions as
`sys.setprofile` tells of them, or `sockets`, sends and receives of ZeroMQ. Of a worker only its lanes count.
"""

import mmap
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

LANE = "lane-"  # how the threads are called that run batches
COUNTED = ("call", "c_call")


def role() -> str:
    if "workers" in sys.orig_argv:
        return "lane"
    return "pool" if "start" in sys.orig_argv else "client"


def counter(path: Path) -> memoryview:
    """The number in a file that others read meanwhile."""
    path.write_bytes(bytes(8))
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")


def count_calls(number: memoryview, lanes_only: bool) -> None:
    def count(_: object, event: str, __: object) -> None:
        if event in COUNTED:
            number[0] += 1

    def first(_: object, __: str, ___: object) -> None:
        """Of a new thread. What this calls itself is not counted."""
        counts = not lanes_only or threading.current_thread().name.startswith(LANE)
        sys.setprofile(count if counts else None)

    threading.setprofile(first)
    if not lanes_only:
        sys.setprofile(count)


def count_sockets(number: memoryview, lanes_only: bool) -> None:
    import zmq

    from pool.wire import multipart

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if not lanes_only or threading.current_thread().name.startswith(LANE):
                number[0] += 1
            return method(*arguments, **options)

        return call

    plain = counted(multipart.plain_send(zmq.Socket))
    setattr(multipart, "plain_send", lambda _: plain)  # noqa: B010  # another kind of callable
    for name in ("send", "recv"):
        setattr(zmq.Socket, name, counted(getattr(zmq.Socket, name)))


if "COUNT_INTO" in os.environ:
    NUMBER = counter(Path(os.environ["COUNT_INTO"], f"{role()}-{os.getpid()}"))
    {"calls": count_calls, "sockets": count_sockets}[os.environ["COUNT_WHAT"]](NUMBER, role() == "lane")

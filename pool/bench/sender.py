"""`python -m pool.bench.sender`: one of several clients of `--clients N`, a process of its own.

A Python process sends and receives with one processor at most, so many clients are many processes. Its orders are what
to submit, and then each run and its end. What was sent and answered goes out while it happens, and the parent counts.
The end of its input ends it.
"""

import math
import os
import socket
import time
from collections.abc import Sequence
from typing import NoReturn

from pool import Client
from pool.bench.child import Line, Told
from pool.bench.load import BenchJob
from pool.bench.loop import Loop, Sent
from pool.bench.point import Answer
from pool.errors import PoolError

__all__ = ["main"]

TELL_S = 0.05


def main() -> NoReturn:
    orders = Told()
    line = Line(socket.socket(fileno=0), orders)
    try:
        _serve(line, orders)
    except (PoolError, OSError) as error:
        line.tell({"failed": str(error)})
    os._exit(0)  # futures that are still out are nobody's


def _serve(line: Line, orders: Told) -> None:
    first = orders.get()
    if not first:
        return
    job = BenchJob.unpacked(first["job"])
    with Client(first["endpoints"], reconnect_timeout=0.0) as client:
        client.models()  # connected before the time is taken
        line.tell({"ready": True})

        def look(_now: float, sent: Sequence[Sent], answers: Sequence[Answer]) -> float:
            line.tell({"sent": sent, "answers": answers})
            return math.inf if orders.empty() else 0

        while order := orders.get():
            if "begin" in order:
                submit = job.submitter(client, order["load"][2], order["first"])
                time.sleep(max(0.0, order["begin"] - time.perf_counter()))  # one clock for all processes of the machine
                _, cpu_share, _ = Loop(submit, look, TELL_S).run(*order["load"])
                line.tell({"ended": cpu_share})


if __name__ == "__main__":
    main()

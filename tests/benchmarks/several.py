"""What several pools cost a client, and what a killed one costs its jobs: `python tests/benchmarks/several.py`.

The models are stubs, so no TensorFlow is needed. Sides take turns in rounds, and a figure is the median of the rounds.
"""

import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from operator import sub, truediv
from pathlib import Path
from typing import TypeVar

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder above: the names here would hide others

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.gateway_costs import ask, request
from pool import Client
from support.foreground_gateway import foreground, url_of
from support.pool_process import PoolProcess, stub_config
from support.several_pools import ready

ROUNDS, JOBS = 7, 400
CONNECTIONS, SECONDS = 32, 2.0
RUN_S = 0.005
MODELS = f"""
[[model]]
name = "echo"
path = "stub:echo"
devices = "all"
[[model]]
name = "rows"
path = "stub:rows?run_ms={1000 * RUN_S:g}"
devices = "all"
max_batch = 1
"""


def pools(devices: Sequence[int]) -> AbstractContextManager[list[PoolProcess]]:
    """Those that serve, with so many workers each."""
    names = [", ".join(['"cpu"'] * count) for count in devices]
    return ready(*(PoolProcess(stub_config(devices=f"[{each}]", models=MODELS)) for each in names))


def client_of(found: Sequence[PoolProcess]) -> Client:
    """It knows all of its pools."""
    client = Client([each.endpoint for each in found])
    for each in client.pools:
        each.wait_ready("rows", 30)
    until = time.monotonic() + 2
    while time.monotonic() < until:
        client.run("echo", {"x": np.float32(1)})
    return client


def rows_s(client: Client) -> float:
    """With 64 jobs in flight."""
    began = time.perf_counter()
    futures = [client.submit("rows", np.ones(1, np.float32), signature="double", block=True) for _ in range(JOBS)]
    for future in futures:
        future.result(60)
    return JOBS / (time.perf_counter() - began)


def lone_us(clients: Sequence[Client], clock: Callable[[], float] = time.perf_counter) -> float:
    """What a lone job takes, which goes to each client in turn."""
    began = clock()
    for number in range(JOBS):
        clients[number % len(clients)].run("echo", {"x": np.float32(1)})
    return 1e6 * (clock() - began) / JOBS


def client_us(clients: Sequence[Client]) -> float:
    """Processor time of this process for it."""
    return lone_us(clients, time.process_time)


@contextlib.contextmanager
def gateway_port(found: Sequence[PoolProcess]) -> Iterator[int]:
    """That of a gateway process of these pools, which it knows."""
    endpoints = [argument for each in found for argument in ("--endpoint", each.endpoint)]
    with (
        tempfile.TemporaryDirectory() as folder,
        foreground(Path(folder), "--listen", "127.0.0.1:0", *endpoints) as (process, log),
    ):
        port = int(url_of(log, process).rpartition(":")[2])
        requests_s(port)
        yield port


def requests_s(port: int) -> float:
    """Of tiny requests, one in flight on each connection."""
    done: list[int] = []
    arguments = (port, request("echo", 16), time.monotonic() + SECONDS, done)
    threads = [threading.Thread(target=ask, args=arguments) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 60)
    return len(done) / SECONDS


Side = TypeVar("Side")


def rounds(measure: Callable[[Side], float], one: Side, several: Side) -> tuple[list[float], list[float]]:
    sides: tuple[list[float], list[float]] = [], []
    for turn in range(ROUNDS):
        for side in (0, 1) if turn % 2 else (1, 0):
            sides[side].append(measure((one, several)[side]))
    return sides


def killed() -> tuple[float, float]:
    """From the kill to the last answer of the jobs that were out, and what all of them would take one pool alone."""
    with pools([1, 1]) as found, client_of(found) as client:
        futures = [client.submit("rows", np.ones(1, np.float32), signature="double") for _ in range(100)]
        time.sleep(10 * RUN_S)
        found[0].running.kill()
        began = time.perf_counter()
        out = sum(not future.done() for future in futures)
        for future in futures:
            future.result(60)
        return time.perf_counter() - began, out * RUN_S


def row(
    what: str,
    measure: Callable[[Side], float],
    one: Side,
    several: Side,
    compare: Callable[[float, float], float],
    form: str,
) -> tuple[str, ...]:
    """Of the table. `compare`: the figure of several with that of one, in each round."""
    mine, theirs = rounds(measure, one, several)
    found = list(map(compare, theirs, mine))
    told = f"{statistics.median(found):{form}} ({min(found):{form}} to {max(found):{form}})"
    return what, f"{statistics.median(mine):,.0f}", f"{statistics.median(theirs):,.0f}", told


def main() -> None:
    table = Table(title=f"stubs, medians of {ROUNDS} rounds, lowest and highest")
    for column in ("what", "one pool", "several", "compared"):
        table.add_column(column)
    with pools([2]) as single, pools([1, 1]) as double:
        with client_of(single) as one, client_of(double) as two:
            what = "jobs/s, two pools against one with the same workers; aim ≥ 0.9"
            table.add_row(*row(what, rows_s, one, two, truediv, ".2f"))
        with gateway_port(single) as first, gateway_port(double) as second:
            what = f"the same through a gateway: requests/s on {CONNECTIONS} connections"
            table.add_row(*row(what, requests_s, first, second, truediv, ".2f"))
    with (
        pools([1]) as single,
        pools([1] * 4) as four,
        client_of(single) as one,
        client_of(four) as many,
        contextlib.ExitStack() as clients,
    ):
        each = [clients.enter_context(client_of([pool])) for pool in four]
        what = "µs until a lone job is answered, four pools against one; aim ≤ +20"
        table.add_row(*row(what, lone_us, [one], [many], sub, "+.0f"))
        what = "processor µs of the client's process for a lone job, four pools against one; aim ≤ +20"
        table.add_row(*row(what, client_us, [one], [many], sub, "+.0f"))
        what = "the same against a client for each of the four, in turn"
        table.add_row(*row(what, client_us, each, [many], sub, "+.0f"))
    slowest = [killed() for _ in range(3)]
    table.add_row(
        "s from the kill of one of two pools to the last answer",
        "",
        f"{statistics.median(each[0] for each in slowest):.2f}",
        f"{statistics.median(each[0] / each[1] for each in slowest):.2f} × the work that was left, aim ≤ 2",
    )
    Console().print(table)


if __name__ == "__main__":
    main()

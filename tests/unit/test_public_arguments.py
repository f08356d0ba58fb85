"""Wrong arguments are `ValueError` or `TypeError`, before anybody is asked: no pool is there."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import AsyncClient, Client, Ragged, Sparse, start

NOT_A_NUMBER = float("nan")

MADE: dict[str, Callable[[], Any]] = {
    "an endpoint that is no text": lambda: Client(7),  # type: ignore[arg-type]
    "an endpoint of no kind": lambda: Client("http://host:1"),
    "a host without a port": lambda: Client("tcp://host"),
    "a time that is a text": lambda: Client(connect_timeout="5"),  # type: ignore[arg-type]
    "a time that is not a number": lambda: Client(connect_timeout=NOT_A_NUMBER),
    "a time before now": lambda: AsyncClient(reconnect_timeout=-1.0),
    "a text to spin": lambda: Client(spin_us="1"),  # type: ignore[arg-type]
    "too long a spin": lambda: Client(spin_us=10**9),
    "a configuration that is a number": lambda: start(7),  # type: ignore[arg-type]
    "an unknown key": lambda: start({"pool": {"nope": 1}}),
    "a value that does not travel": lambda: start({"pool": {"endpoint": object()}}),
    "a time to start that is a text": lambda: start(ready_timeout="5"),  # type: ignore[arg-type]
    "a time to start that is not a number": lambda: start(ready_timeout=NOT_A_NUMBER),
    "a ragged tensor without splits": lambda: Ragged(np.zeros(1), ()),
    "a sparse tensor of lists": lambda: Sparse([[1]], [1], [3]),  # type: ignore[arg-type]
}
ASKED: dict[str, Callable[[Any], Any]] = {
    "run, a model": lambda client: client.run(7, [1.0]),
    "run, a timeout": lambda client: client.run("m", [1.0], timeout="5"),
    "run, an option": lambda client: client.run("m", [1.0], nope=1),
    "submit, a model": lambda client: client.submit(7, [1.0]).result(5),
    "submit, an input": lambda client: client.submit("m", {"x": object()}).result(5),
    "submit, an option": lambda client: client.submit("m", [1.0], nope=1),
    "submit_many, a model": lambda client: client.submit_many(None, [1.0])[0].result(5),
    "submit_many, no inputs": lambda client: client.submit_many("m", None),
    "map, a model": lambda client: client.map(None, [1.0]),
    "map, no inputs": lambda client: client.map("m", None),
    "map, none in flight": lambda client: client.map("m", [1.0], in_flight=0),
    "map, a half in flight": lambda client: client.map("m", [1.0], in_flight=1.5),
    "scatter, a model": lambda client: client.scatter(7, [1.0]),
    "scatter, a reduction": lambda client: client.scatter("m", [1.0], reduce="product"),
    "scatter, pieces": lambda client: client.scatter("m", [1.0], pieces=0),
    "broadcast, a model": lambda client: client.broadcast(7, [1.0]),
    "placement, a model": lambda client: client.placement(7),
    "placement, a timeout": lambda client: client.placement("m", timeout="5"),
    "session, a model": lambda client: client.session(7).run("x:0"),
    "session, an option": lambda client: client.session("m", nope=1),
    "explain, a job": lambda client: client.explain("a"),
    "explain, both": lambda client: client.explain(1, slot=1),
    "explain, a slot": lambda client: client.explain(slot=-1),
    "restart, a slot": lambda client: client.restart("a"),
    "drain, a slot": lambda client: client.drain(None),
    "load, a model": lambda client: client.load(None, "/model"),
    "load, a path": lambda client: client.load("m", None),
    "load, keys without a path": lambda client: client.load("m", max_batch=8),
    "load, a name twice": lambda client: client.load("m", "stub:echo", name="n"),
    "load, a timeout": lambda client: client.load("m", "stub:echo", timeout="5"),
    "load, a value that does not travel": lambda client: client.load("m", "stub:echo", devices=object()),
    "unload, a model": lambda client: client.unload(3),
    "is_ready, a model": lambda client: client.is_ready(7),
    "wait_ready, a model": lambda client: client.wait_ready(7),
    "wait_ready, a timeout": lambda client: client.wait_ready(timeout=NOT_A_NUMBER),
    "wait_updated, a timeout": lambda client: client.wait_updated("5"),
    "submit_payload, rows": lambda client: client.submit_payload("m", rows="a", payload=[b""]),
    "submit_payload, a payload": lambda client: client.submit_payload("m", rows=None, payload=[1]),
}
AWAITED: dict[str, Callable[[Any], Any]] = {
    "submit, a model": lambda client: client.submit(7, [1.0]),
    "submit, an option": lambda client: client.submit("m", [1.0], nope=1),
    "explain, a job": lambda client: client.explain("a"),
    "load, a path": lambda client: client.load("m", None),
    "map, a model": lambda client: client.map(None, [1.0]),
    "map, none in flight": lambda client: client.map("m", [1.0], in_flight=0),
    "load, a timeout": lambda client: client.load("m", "stub:echo", timeout="5"),
    "wait_ready, a model": lambda client: client.wait_ready(7),
    "wait_ready, a timeout": lambda client: client.wait_ready(timeout=-1.0),
    "scatter, pieces": lambda client: client.scatter("m", [1.0], pieces=0),
    "drain, a slot": lambda client: client.drain(None),
}


@pytest.mark.parametrize("what", MADE)
def test_of_what_is_made(what: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        MADE[what]()


@pytest.mark.parametrize("what", ASKED)
def test_of_what_is_asked(tmp_path: Path, what: str) -> None:
    with Client(f"ipc://{tmp_path}/p.sock", connect_timeout=5.0) as client, pytest.raises((ValueError, TypeError)):
        ASKED[what](client)


@pytest.mark.parametrize("what", AWAITED)
def test_of_what_is_awaited(tmp_path: Path, what: str) -> None:
    async def main() -> None:
        async with AsyncClient(f"ipc://{tmp_path}/p.sock", connect_timeout=5.0) as client:
            await AWAITED[what](client)

    with pytest.raises((ValueError, TypeError)):
        asyncio.run(main())

"""Ctrl-C and fork at each line of a call: they cost that call alone."""

import gc
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from support.pools import RunningPool, row, until

ROUNDS = int(os.environ.get("INTERRUPT_ROUNDS", "1"))
LARGE = 20_000  # values: through shared memory


def at_line(number: int, call: Callable[[], Any], do: Callable[[], None]) -> bool:
    """Calls, and does something before the line of the client's code that comes so late. False: there is none.

    The end of a `with` block is no such line: between its last call and `__exit__`, Python lets no signal in.
    """
    lines = 0
    entered: set[tuple[int, int]] = set()

    def in_frame(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if event == "line":
            place = id(frame), frame.f_lineno
            if linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
                if place in entered:
                    return in_frame
                entered.add(place)
            lines += 1
            if lines == number:
                sys.settrace(None)
                do()
        return in_frame

    def trace(frame: Any, event: str, _: Any) -> Any:
        path = frame.f_code.co_filename
        return in_frame if "/pool/client/" in path or "/concurrent/futures/" in path else None

    gc.disable()  # Python drops what is raised in a finalizer of what other tests have left
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
        gc.enable()
    return lines >= number


def interrupt() -> None:
    raise KeyboardInterrupt


def forked(check: Callable[[], None]) -> int:
    """The pid of a child, whose status is 0 if it checks this and nothing raises."""
    if (child := os.fork()) == 0:
        status = 1
        try:
            check()
            status = 0
        finally:
            os._exit(status)
    return child


@pytest.fixture
def others(client: Client) -> Iterator[list["Future[None]"]]:
    """Threads of the same client with jobs of their own, none of which may fail. None is done before the test's end."""
    stop = threading.Event()

    def work(call: Callable[[float], Any]) -> None:
        value = 1.0
        while not stop.wait(0.001):
            assert call(value)["y"].item() == 2 * value
            value += 1

    calls = (lambda value: client.run("plain", row(value)), lambda value: client.submit("plain", row(value)).result(10))
    with ThreadPoolExecutor() as threads:
        working = [threads.submit(work, call) for call in calls]
        yield working
        stop.set()
        for each in working:
            each.result()


CALLS: dict[str, Callable[[Client, float], Any]] = {
    "run": lambda client, value: client.run("plain", row(value)),
    "large run": lambda client, value: client.run("plain", row(value, LARGE)),
    "submit": lambda client, value: client.submit("plain", row(value)).result(10),
    "large submit": lambda client, value: client.submit("plain", row(value, LARGE)).result(10),
    "map": lambda client, value: [*client.map("double", {"x": np.full((3, 1), value, np.float32)})],
}


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_at_each_line(client: Client, others: list["Future[None]"], name: str) -> None:
    call = CALLS[name]
    for _ in range(ROUNDS):
        call(client, 1)
        line = 1
        while True:
            try:
                is_there = at_line(line, lambda value=line: call(client, value), interrupt)  # type: ignore[misc]
            except KeyboardInterrupt:
                is_there = True
            result = call(client, line + 0.5)
            assert (result[2] if name == "map" else result)["y"][0, 0] == 2 * line + 1
            assert not any(each.done() for each in others)
            if not is_there:
                break
            line += 1
        assert line > 30, "premise: the call has so many lines"
    del result
    until(lambda: client.status()["queue"]["jobs"] <= 2, "no job is left behind")  # those of the other threads
    assert client._sender is not None
    assert client._sender.channel is not None
    channels = [client._sender.channel, getattr(client._own, "channel", client._sender.channel)]
    for arena in filter(None, [channel._arena for channel in channels]):
        until(lambda arena=arena: arena._collect() or arena._free == arena.size, "all shared memory is free")  # type: ignore[misc]


def test_ctrl_c_in_the_first_calls_of_a_client(running: RunningPool) -> None:
    line = 1
    while True:
        clients: list[Client] = []

        def first(clients: list[Client] = clients, line: int = line) -> None:
            clients.append(Client(running.endpoint))
            clients[0].run("plain", row(line))
            clients[0].submit("plain", row(line, LARGE)).result(10)

        try:
            if not at_line(line, first, interrupt):
                break
        except KeyboardInterrupt:
            pass
        for each in [*clients, Client(running.endpoint)]:
            assert each.run("plain", row(3))["y"].item() == each.submit("plain", row(3)).result(10)["y"].item() == 6
            each.close()
        line += 7  # each takes a while
    assert line > 100


@pytest.mark.parametrize("name", ["run", "submit"])
def test_fork_at_each_line(client: Client, others: list["Future[None]"], name: str) -> None:
    call = CALLS[name]
    call(client, 1)
    kept = call(client, 4)
    children: list[int] = []

    def check() -> None:
        assert client.run("plain", row(7))["y"].item() == client.submit("plain", row(7)).result(10)["y"].item() == 14
        assert kept["y"].item() == 8

    line = 1
    while True:
        is_there = at_line(line, lambda value=line: call(client, value), lambda: children.append(forked(check)))  # type: ignore[misc]
        while children:
            assert os.waitpid(children.pop(), 0)[1] == 0
        assert call(client, line)["y"].item() == 2 * line
        assert not any(each.done() for each in others)
        if not is_there:
            break
        line += 5
    assert line > 30


def test_a_fork_leaves_results_and_fails_the_parent_s_futures(client: Client) -> None:
    client.submit("plain", row(1, LARGE)).result(10)
    kept = [client.submit("plain", row(2, LARGE)).result(10), client.run("plain", row(3, LARGE))]
    read, write = os.pipe()
    pending = client.submit("text", ["a" * 100_000])

    def check() -> None:
        os.read(read, 1)  # until the parent has run more
        assert all((each["y"] == value).all() for each, value in zip(kept, (4, 6), strict=True))
        error = pending.exception(10)  # None: it had ended before
        assert error is None or (type(error) is errors.PoolUnreachable and "fork" in str(error))

    child = forked(check)
    del kept[:]
    for value in range(10, 20):
        assert (client.submit("plain", row(value, LARGE)).result(10)["y"] == 2 * value).all()
        assert (client.run("plain", row(value, LARGE))["y"] == 2 * value).all()
    os.write(write, b"1")
    assert os.waitpid(child, 0)[1] == 0
    assert pending.result(10)["y"].item() == b"a" * 100_000

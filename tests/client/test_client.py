"""The client against a pool of stub models: jobs, results, map, asyncio, threads, and a pool that is frozen or gone."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pool
from pool import AsyncClient, Client, errors
from pool.wire import RELEASE
from pool.wire.bodies import pack
from support.pools import RunningPool, StartPool, until

CONFIG = """
[pool]
devices = ["cpu"]
[[model]]
name = "double"
path = "stub:double?width=4"
batching = "on"
max_batch = 16
[[model]]
name = "plain"
path = "stub:double?width=4"
[[model]]
name = "wide"
path = "stub:double?width=65536"
batching = "on"
[[model]]
name = "echo"
path = "stub:echo"
[[model]]
name = "text"
path = "stub:echo?dtype=string"
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPool]:
    made = RunningPool(tmp_path_factory.mktemp("pool"), CONFIG, {})
    made.wait_for("ready:")
    yield made
    made.kill()


@pytest.fixture
def client(running: RunningPool) -> Iterator[Client]:
    with Client(running.endpoint) as made:
        yield made


def rows(count: int, width: int = 4) -> Any:
    return np.arange(count * width, dtype=np.float32).reshape(count, width)


def test_a_result_says_where_it_ran_and_its_arrays_are_the_caller_s(client: Client) -> None:
    for count, model, width in ((1, "double", 4), (3, "wide", 65536)):
        for _ in range(3):  # the second time, a large answer has a room in shared memory
            result = client.run(model, {"x": rows(count, width)})
            assert (result["y"] == rows(count, width) * 2).all()
            result["y"][0, 0] = 7
        assert (result.slot, result.device) == (0, "cpu:0")
        assert result.timeline.total_s >= result.timeline.run_s >= 0
        assert result.timeline.together == 1


def test_lists_numbers_and_strings(client: Client) -> None:
    assert client.run("double", [[1, 2, 3, 4]])["y"].tolist() == [[2, 4, 6, 8]]
    assert client.run("text", {"x": ["x", "é".encode()]})["y"].tolist() == [b"x", "é".encode()]
    long = ["a" * 50_000, "b"]
    assert client.run("text", {"x": long})["y"].tolist() == [b"a" * 50_000, b"b"]
    assert client.run("echo", {"x": 5})["y"].tolist() == 5.0
    assert client.run("echo", {"x": rows(4)[::2, ::-1]})["y"].tolist() == rows(4)[::2, ::-1].tolist()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ({"model": "doubel", "inputs": {"x": rows(1)}}, errors.ModelNotFound),
        ({"model": "double", "inputs": {"x": rows(1)[0]}}, errors.InvalidInput),
        ({"model": "double", "inputs": {"x": rows(1)}, "signature": "other"}, errors.InvalidInput),
        ({"model": "double", "inputs": {"x": rows(1)}, "outputs": ["z"]}, errors.InvalidInput),
        ({"model": "double", "inputs": {"x": rows(1)}, "outputs": "y"}, errors.InvalidInput),
        ({"model": "double", "inputs": {"x": rows(1)}, "timeout": float("nan")}, errors.InvalidInput),
        ({"model": "double", "inputs": {"x": rows(1)}, "timeout": -1.0}, errors.InvalidInput),
        ({"model": "double", "inputs": {"x": rows(1)}, "priority": 101}, errors.InvalidInput),
        ({"model": "double", "inputs": {}}, errors.InvalidInput),
        ({"model": "text", "inputs": {"x": np.array(["a", 1], object)}}, errors.InvalidInput),
    ],
)
def test_mistakes_are_told_and_cost_nothing(client: Client, call: dict[str, Any], error: type[Exception]) -> None:
    for method in (client.run, lambda **options: client.submit(**options).result()):
        with pytest.raises(error):
            method(**call)
    assert client.run("double", {"x": rows(1)})["y"].shape == (1, 4)


def test_inputs_larger_than_a_batch_are_cut_where_rows_are_vouched_for(client: Client) -> None:
    result = client.run("double", {"x": rows(100)})
    assert (result["y"] == rows(100) * 2).all()
    before = client.status()["models"]
    client.run("plain", {"x": rows(100)})
    client.run("double", {"x": rows(100)})
    after = client.status()["models"]
    assert [b["done"] - a["done"] for a, b in zip(before, after, strict=True)][:2] == [7, 1]


def test_map_gives_rows_in_order_by_blocks_or_one_by_one(client: Client) -> None:
    for model in ("double", "plain"):
        found = [result["y"] for result in client.map(model, {"x": rows(100)}, in_flight=8)]
        assert all(array.shape == (1, 4) for array in found)
        assert (np.concatenate(found) == rows(100) * 2).all()
    singles = client.map("double", ({"x": rows(3)[n : n + 1]} for n in range(3)))
    assert [result["y"][0, 0] for result in singles] == [0, 8, 16]
    assert [future.result()["y"][0, 0] for future in client.submit_many("double", [rows(1)] * 5)] == [0] * 5
    with pytest.raises(errors.InvalidInput):
        next(iter(client.map("double", {"x": rows(2), "z": rows(3)})))
    assert list(client.map("double", {"x": rows(0)})) == []


def test_a_failed_block_is_halved_until_only_the_guilty_row_raises(client: Client) -> None:
    data = rows(40) + 1
    data[21, 0] = -1  # which the stub does not bear
    found: list[Any] = []
    with pytest.raises(errors.ModelFailed, match="a row that the model does not bear"):
        found.extend(result["y"] for result in client.map("double", {"x": data}))
    assert (np.concatenate(found) == data[:21] * 2).all()
    assert len(found) == 21


def test_neighbours_share_a_run_without_a_copy_and_memory_comes_back(client: Client) -> None:
    for _ in range(3):
        futures = [client.submit("wide", {"x": rows(1, 65536) + n}) for n in range(64)]
        assert all((future.result()["y"] == (rows(1, 65536) + n) * 2).all() for n, future in enumerate(futures))
    assert max(future.result().timeline.together for future in futures) > 1
    del futures
    gc.collect()
    sender = client._sender
    assert sender is not None
    arena = sender._channel._arena
    assert arena is not None
    arena.take(64)
    assert arena.used == 64


def test_many_kept_results_do_not_starve_others(client: Client) -> None:
    kept = [client.run("wide", {"x": rows(8, 65536) + n})["y"] for n in range(200)]  # 400 MiB, past the arena
    assert all((array == (rows(8, 65536) + n) * 2).all() for n, array in enumerate(kept))


def test_what_is_larger_than_the_arena(client: Client) -> None:
    data = np.ones((300, 65536), np.float32)
    for _ in range(2):
        assert client.run("echo", {"x": data})["y"].sum() == data.size
    assert client.status()["queue"]["bytes"] == 0


def test_asyncio(running: RunningPool) -> None:
    async def main() -> None:
        async with AsyncClient(running.endpoint) as client:
            await client.wait_ready()
            results = await asyncio.gather(*(client.submit("double", {"x": rows(1) + n}) for n in range(200)))
            assert [result["y"][0, 0] for result in results] == [2.0 * n for n in range(200)]
            assert (await client.run("double", {"x": rows(100)}))["y"].shape == (100, 4)
            assert [r["y"][0, 0] async for r in client.map("plain", {"x": rows(3)})] == [0, 8, 16]
            with pytest.raises(errors.ModelNotFound):
                await client.submit("none", [1])
            task = asyncio.ensure_future(client.submit("double", {"x": rows(1)}))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await client.status())["queue"]["jobs"] == 0

    asyncio.run(main())
    asyncio.run(main())


def test_a_frozen_pool_ends_no_wait_late(start_pool: StartPool) -> None:
    frozen = start_pool(CONFIG)
    with Client(frozen.endpoint) as client:
        client.run("double", {"x": rows(1)})
        os.kill(frozen.pid, signal.SIGSTOP)
        began = time.monotonic()
        future = client.submit("double", {"x": rows(1)}, timeout=0.2)
        with pytest.raises(errors.DeadlineExceeded):
            client.run("double", {"x": rows(1)}, timeout=0.2)
        assert isinstance(future.exception(10), errors.DeadlineExceeded)
        assert time.monotonic() - began < 5
        os.kill(frozen.pid, signal.SIGCONT)
        assert client.run("double", {"x": rows(1)})["y"].shape == (1, 4)
        assert client.submit("double", {"x": rows(1)}).result(10)["y"].shape == (1, 4)


def test_a_pool_that_has_gone_is_told_and_its_successor_found(start_pool: StartPool) -> None:
    first = start_pool(CONFIG)
    with Client(first.endpoint) as client:
        client.run("double", {"x": rows(1)})
        first.kill()
        with pytest.raises(errors.PoolUnreachable):
            client.run("double", {"x": rows(1)})
        with pytest.raises(errors.PoolUnreachable):
            client.submit("double", {"x": rows(1)}).result(10)
        second = start_pool(CONFIG, wait=False, folder=first.folder)
        until(lambda: Path(second.endpoint[6:] + ".link").exists() and answers(client), "the next pool")
        assert client.submit("double", {"x": rows(1)}).result(30)["y"].shape == (1, 4)


def answers(client: Client) -> bool:
    try:
        return bool(client.run("double", {"x": rows(1)}, timeout=30)["y"].shape)
    except errors.PoolUnreachable:
        return False


def test_a_pool_of_another_wire_is_refused_by_both_names(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "pool.sock.link"))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            connection.send(pack({"wire": 99, "release": "9.9.9"}))
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(errors.Incompatible, match=rf"release 9\.9\.9, this client of {RELEASE}"):
            Client(f"ipc://{tmp_path}/pool.sock")
        thread.join()


def test_channels_of_threads_that_have_ended_are_closed(running: RunningPool, client: Client) -> None:
    def channels() -> int:
        return len(client._channels)

    for _ in range(3):
        threads = [threading.Thread(target=client.run, args=("double", {"x": rows(1)})) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    client.run("double", {"x": rows(1)})
    assert channels() <= 21


def test_an_interrupted_run_costs_its_own_channel_alone(running: RunningPool, client: Client) -> None:
    client.run("double", {"x": rows(1)})
    others = client.submit("double", {"x": rows(1)})
    os.kill(running.pid, signal.SIGSTOP)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(KeyboardInterrupt):
            client.run("double", {"x": rows(1)})
    finally:
        signal.signal(signal.SIGALRM, previous)
        os.kill(running.pid, signal.SIGCONT)
    assert others.result(10)["y"].shape == (1, 4)
    assert (client.run("double", {"x": rows(1) + 5})["y"] == (rows(1) + 5) * 2).all()


def test_the_package_is_light_until_it_is_used(tmp_path: Path) -> None:
    import subprocess

    code = "import pool, sys; assert not {'numpy', 'zmq', 'pydantic', 'tensorflow'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    code = "import pool; pool.Client; import sys; assert not {'pydantic', 'tensorflow'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_embedded_pool_lives_as_long_as_its_block_and_its_process(tmp_path: Path) -> None:
    import subprocess

    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    with pool.start(config) as embedded:
        assert embedded.submit("double", {"x": rows(1)}).result(30)["y"].shape == (1, 4)
        pid = embedded.status()["pool"]["pid"]
    assert not Path(f"/proc/{pid}").exists()
    config.write_text("[pool]\nlanes = 0\n")
    with pytest.raises(errors.InvalidConfig, match="lanes"):
        pool.start(config)
    config.write_text(CONFIG)
    code = f"""
import os, pool
embedded = pool.start({str(config)!r})
print(embedded.status()["pool"]["pid"], flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    until(lambda: not Path(f"/proc/{int(done.stdout)}").exists(), "the end of a pool whose program was killed")

"""Whatever becomes of a caller: dropped clients, programs that end or fork, alarms, a notebook, loops that block."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import nbclient
import nbformat
import pytest

from pool import AsyncClient, Client, errors
from support.pools import STUB, RunningPool, row, until


def clients(pool: RunningPool) -> int:
    with Client(pool.endpoint) as asking:
        return int(asking.status()["clients"]) - 1


def python(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60)


def test_a_dropped_client_ends_with_its_thread_and_its_link(running: RunningPool) -> None:
    threads = threading.active_count()
    client = Client(running.endpoint)
    client.run("plain", row())
    future = client.submit("plain", row(3))
    assert future.result(10)["y"].item() == 6
    del client, future
    gc.collect()
    until(lambda: threading.active_count() == threads, "its thread has ended")
    until(lambda: clients(running) == 0, "its link has ended")


@pytest.mark.parametrize("end", ["pass", "1 / 0", "os._exit(0)"])
def test_a_program_ends_at_once_whatever_it_left_open(running: RunningPool, end: str) -> None:
    code = f"""
import os, sys, threading
import numpy as np
from pool import Client, submit
client = Client(sys.argv[1])
x = {{"x": np.ones((1, 1), np.float32)}}
kept = client.run("plain", x), client.submit_many("plain", [x] * 500)
threading.Thread(target=client.run, args=["plain", x]).start()
print("done", flush=True)
{end}
"""
    began = time.monotonic()
    ran = python(code, running.endpoint)
    assert ran.stdout == "done\n"
    assert ran.stderr == "" or "ZeroDivisionError" in ran.stderr
    assert ran.returncode == (end == "1 / 0")
    assert time.monotonic() - began < 20


def test_the_first_calls_of_a_program_import_nothing(running: RunningPool) -> None:
    """What Ctrl-C or an alarm meets in an import would stay half imported."""
    code = """
import sys
import numpy as np
from pool import Client
before = {*sys.modules}
client, x = Client(sys.argv[1]), np.ones((1, 1), np.float32)
client.run("plain", x), client.submit("plain", x).result(10), client.close()
print({*sys.modules} - before)
"""
    assert python(code, running.endpoint).stdout == "set()\n"


def test_a_notebook(tmp_path: Any) -> None:
    """A real kernel: an embedded pool, awaits in the kernel's own loop, an interrupt."""
    (tmp_path / "config.toml").write_text(STUB.replace('"stub:double"', '"stub:double?sleep=0.001"'))
    cells = [
        "import asyncio, pool, signal, threading\nserver = pool.start('config.toml')",
        "assert server.run('plain', [[2]])['y'].item() == 4\nfuture = server.submit('plain', [[3]])",
        "client = pool.AsyncClient(server.status()['pool']['endpoint'])\n"
        "found = await asyncio.gather(*(client.run('plain', [[i]]) for i in range(50)))\n"
        "assert [each['y'].item() for each in found] == [2 * i for i in range(50)]",
        "threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()\n"
        "try:\n    while True: server.run('plain', [[1]])\nexcept KeyboardInterrupt:\n    print('interrupted')",
        "assert server.run('plain', [[5]])['y'].item() == 10 and future.result()['y'].item() == 6\n"
        "await client.close()\nserver.close()\nprint('fine')",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    streams = [each for cell in notebook.cells for each in cell.outputs if each["output_type"] == "stream"]
    assert [each["text"] for each in streams] == ["interrupted\n", "fine\n"]


def test_a_loop_that_blocks_keeps_every_promise(running: RunningPool) -> None:
    async def main() -> None:
        async with AsyncClient(running.endpoint) as client:
            await client.run("plain", row())
            jobs = [asyncio.ensure_future(client.run("plain", row(i))) for i in range(100)]
            short = asyncio.ensure_future(client.run("plain", row(), timeout=0.2))
            await asyncio.sleep(0)
            time.sleep(1.5)
            assert [(await job)["y"].item() for job in jobs] == [2.0 * i for i in range(100)]
            with suppress(errors.DeadlineExceeded):  # it was answered in time, though nobody read it
                assert (await short)["y"].item() == 2

    asyncio.run(main())


def test_a_loop_that_ends_early_leaves_nothing(running: RunningPool) -> None:
    async def leave(client: AsyncClient) -> Any:
        await client.run("plain", row())
        return asyncio.ensure_future(client.run("plain", row()))

    async def again(client: AsyncClient) -> Any:
        return (await client.run("plain", row(4)))["y"].item()

    client = AsyncClient(running.endpoint)
    assert asyncio.run(leave(client)).cancelled()
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(asyncio.run, again(client)).result(20) == 8
    del client
    gc.collect()
    until(lambda: clients(running) == 0, "its link has ended")

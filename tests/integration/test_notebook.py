"""A pool of one's own in a notebook's kernel, run for real: cell after cell."""

from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from support.processes import alive, eventually

LONG_S = 60.0
START = """
import pool
owned = pool.start({"model": [{"name": "slow", "path": "stub:rows?load_ms=LOAD"}], "pool": {"devices": ["cpu"]}})
owned.pid
"""
SLOWLY = START.replace("LOAD", "1500")  # so that there is something to show
QUICKLY = START.replace("LOAD", "0")

Cell = Callable[[str], tuple[dict[str, Any], str]]


@pytest.fixture
def cell() -> Iterator[Cell]:
    manager, client = start_new_kernel(kernel_name="python3")

    def run(code: str) -> tuple[dict[str, Any], str]:
        """What the cell shows as its value, and what it writes on standard error."""
        asked = client.execute(code)
        shown: dict[str, Any] = {}
        written = ""
        while True:
            try:
                message = client.get_iopub_msg(timeout=LONG_S)
            except Empty:
                raise AssertionError(f"the cell did not end: {code}") from None
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            assert kind != "error", "\n".join(content["traceback"])
            if kind == "execute_result":
                shown = content["data"]
            elif kind == "stream" and content["name"] == "stderr":
                written += content["text"]
            elif kind == "status" and content["execution_state"] == "idle":
                return shown, written

    yield run
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_it_shows_its_progress_and_its_status_and_lives_until_it_is_closed(cell: Cell) -> None:
    shown, written = cell(SLOWLY)
    pid = int(shown["text/plain"])
    assert "\r0 of 1 slots READY · slot 0 cpu:0: " in written
    assert written.endswith("\r"), "nothing of it stays"
    shown, _ = cell("owned.status()")
    assert "<td>slow</td>" in shown["text/html"]
    assert "<td>READY</td>" in shown["text/html"]
    shown, _ = cell("import numpy as np\nfloat(owned.run('slow', np.ones(1, np.float32), signature='double')['y'][0])")
    assert shown["text/plain"] == "2.0"
    cell("owned.close()")
    eventually(lambda: not alive(pid))
    cell("owned.close()")
    shown, _ = cell(QUICKLY)
    again = int(shown["text/plain"])
    assert alive(again)
    shown, _ = cell(
        "results = [r async for r in pool.AsyncClient(owned.endpoint).map('slow', np.ones((9, 1), 'f4'),"
        " signature='double')]\nlen(results)"
    )
    assert shown["text/plain"] == "9"
    cell(QUICKLY)  # in the place of the former
    eventually(lambda: not alive(again))

"""Clients that ask all the time, while a test changes what is served: not one of their jobs may fail."""

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pool import Client
from support.pool_process import PoolProcess
from support.processes import eventually

ROW = np.ones((1,), np.float32)
BREATH_S = 0.005  # of each client between two jobs: what a test waits for needs the cores more than they do


def put(folder: Path, number: int, text: str | None = None) -> None:
    """A version that tells its number, or is what the text says; moved there whole."""
    made = folder.with_name(f"{folder.name}-{number}")
    made.mkdir(parents=True)
    (made / "saved_model.pb").write_text(text or f"tell?n={number}")
    folder.mkdir(exist_ok=True)
    made.rename(folder / str(number))


def answers(client: Client, model: str = "m", **options: Any) -> float:
    return float(client.run(model, ROW, timeout=20.0, **options)["y"][0])


@contextmanager
def asked_all_the_time(
    pool: PoolProcess, model: str = "m", clients: int = 3, most_rows: int = 3
) -> "Iterator[Counter[float]]":
    """How often each version has answered; not one job may fail. Inputs of many rows travel in segments."""
    over, found, failed = threading.Event(), Counter[float](), list[BaseException]()

    def ask() -> None:
        with pool.client() as client:
            for number in itertools.count():
                if over.is_set():
                    return
                try:
                    rows = np.ones((most_rows if number % 3 == 2 else 1 + number % 3,), np.float32)
                    said = set(client.run(model, rows, timeout=20.0)["y"].tolist())
                    assert len(said) == 1, f"one job was answered by {said}"
                    found[said.pop()] += 1
                    over.wait(BREATH_S)
                except BaseException as error:  # told by the test
                    failed.append(error)
                    return

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: found.total() > 10)
        yield found
    finally:
        over.set()
        for thread in threads:
            thread.join(30)
    assert not failed, f"{failed} after {found.total()} answers\n{pool.text()[-3000:]}"

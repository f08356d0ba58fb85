"""A cluster with one pool, and clients that ask it all the time, for the tests of what dies there.

How often each job ran is in the ledgers of the models that count. As a program, it asks from another machine:

    python -m faults.cluster_load FOLDER ENDPOINT [KEY SERVER_KEY]

A line of standard input is answered when more jobs were, and with its end all is checked, and what failed is told.
"""

import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pool import Client
from pool.errors import PoolError
from support.pool_process import READY_S
from support.processes import children, eventually
from support.ray_cluster import LocalCluster

__all__ = ["CONFIG", "TOKEN", "Load", "family", "one_pool", "pool_pid"]

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
HUNG_S = 2.0
ATTEMPTS = 3
CONFIG = f"""
[pool]
devices = ["cpu", "cpu"]
drain_timeout = "5s"
[queue]
max_attempts = {ATTEMPTS}
[cluster]
name = "p-{{node}}"
hung_after = "{HUNG_S:g}s"
[[model]]
name = "tally"
path = "stub:tally?@folder@/tally&run_ms=3"
devices = "all"
[[model]]
name = "counter"
path = "stub:counter?@folder@/counter&run_ms=3"
"""


@contextmanager
def one_pool(environ: Mapping[str, str] | None = None) -> Iterator[LocalCluster]:
    """A head, and a node with GPUs and a pool. `environ`: for all that has to do with Ray, besides a token."""
    with tempfile.TemporaryDirectory(prefix="pt-") as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in {**TOKEN, **(environ or {})}.items():
            patch.setenv(name, value)
        found = LocalCluster(Path(folder))
        try:
            found.config.write_text(CONFIG.replace("@folder@", folder))
            found.add()
            started = found.run("start", "--ray", found.address)
            assert started.returncode == 0, started
            assert "RAY_AUTH_MODE" not in started.stderr, "nobody is warned who has a token"
            yield found
        finally:
            found.close()


class Load:
    """Jobs of both models that count, all the time, from a thread each. `number` is the job's own, in both."""

    def __init__(self, folder: Path, endpoint: str, *keys: str, reconnect_s: float = 60.0) -> None:
        """`folder`: of the ledgers. `keys`: this client's, and the pools'."""
        for model in ("tally", "counter"):
            Path(folder, model).write_bytes(b"")  # its workers append to it
        self._folder, self._endpoint, self._reconnect_s = folder, endpoint, reconnect_s
        self._keys: dict[str, Any] = dict(zip(("key", "server_key"), keys, strict=False))
        self._over = threading.Event()
        self.sent: dict[str, int] = {"tally": 0, "counter": 0}
        self.answered: dict[str, set[int]] = {"tally": set(), "counter": set()}
        self.failed: dict[str, dict[int, str]] = {"tally": {}, "counter": {}}
        self._threads = [threading.Thread(target=self._ask, args=(model,)) for model in self.sent]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        self.await_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(READY_S)
            assert not thread.is_alive(), "a job that never ends"

    def await_more(self) -> None:
        """Until each model has answered some jobs that were not sent yet."""
        before = dict(self.sent)
        eventually(lambda: all(max(self.answered[model], default=0) > before[model] + 5 for model in before), READY_S)

    def _ask(self, model: str) -> None:
        with Client(self._endpoint, reconnect_timeout=self._reconnect_s, **self._keys) as client:
            while not self._over.is_set():
                self.sent[model] += 1
                number = self.sent[model]
                try:
                    client.run(model, number, signature="add", timeout=60.0)
                    self.answered[model].add(number)
                except PoolError as error:
                    self.failed[model][number] = type(error).__name__

    def check(self) -> None:
        """None lost and none doubled: each that was answered ran; one that keeps state ran once."""
        ran = {model: Counter(map(int, Path(self._folder, model).read_text().split())) for model in self.sent}
        for model, answered in self.answered.items():
            assert answered
            assert answered <= ran[model].keys()
            assert answered | self.failed[model].keys() == set(range(1, self.sent[model] + 1))
        assert max(ran["counter"].values()) == 1, "a model that keeps state"
        assert max(ran["tally"].values()) <= ATTEMPTS


def pool_pid(endpoint: str) -> int:
    """Of the pool there, which may have to be placed again first."""
    with Client(endpoint, connect_timeout=READY_S) as client:
        return client.status().pid


def family(pid: int) -> list[int]:
    """A pool and its workers."""
    found = [pid, *children(pid)]
    assert len(found) > 1
    return found


def main(folder: str, endpoint: str, *keys: str) -> None:
    with Load(Path(folder), endpoint, *keys) as load:
        for _ in sys.stdin:
            load.await_more()
            sys.stdout.write("more\n")
            sys.stdout.flush()
    load.check()
    sys.stdout.write(json.dumps({model: sorted({*failed.values()}) for model, failed in load.failed.items()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

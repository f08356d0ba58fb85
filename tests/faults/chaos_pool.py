"""The configuration of the chaos run's pool, and how the run changes it while the pool serves."""

import random
import socket
from pathlib import Path

from faults.crash_matrix import cpus
from pool import Client
from pool.errors import InvalidConfig
from support.pool_process import PoolProcess, stub_config

__all__ = ["ATTEMPTS", "LANES", "MOST_ROWS", "SLOTS", "Configuration"]

SLOTS = 3
LANES = 2
ATTEMPTS = 3
MOST_ROWS = 8  # of a batch of a model that counts its runs
COUNTS_MS = 3  # from the line in its ledger to the answer, so that workers die in between
PORTS = range(20_000, 30_000)  # the kernel gives those of connections from above
REST = f"""
[health]
heartbeat = "200ms"
hung_after = "1500ms"
[queue]
max_attempts = {ATTEMPTS}
[restart]
intensity = 100000
backoff_max = "200ms"
"""
MODELS = """
[[model]]
name = "rows"
path = "stub:rows?run_ms={run_ms}"
batching = "always"
devices = "all"
max_batch = {max_batch}
[[model]]
name = "echo"
path = "stub:echo"
devices = "all"
[[model]]
name = "counter"
path = "stub:counter?{folder}/counter&run_ms={counts_ms}"
devices = "all"
[[model]]
name = "tally"
path = "stub:tally?{folder}/tally&run_ms={counts_ms}"
batching = "always"
devices = "all"
max_batch = {most_rows}
"""
SECOND = "second", "stub:tell?n=7"


def free_port(rng: random.Random) -> int:
    """One that nobody listens at. The pool that follows another is to have the same."""
    while True:
        with socket.socket() as attempt:
            port = rng.choice(PORTS)
            try:
                attempt.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Configuration:
    def __init__(self, folder: Path) -> None:
        """`folder`: where the ledgers of the models are that count their runs."""
        self.counter, self.tally = folder / "counter", folder / "tally"
        self.remote = f"tcp://127.0.0.1:{free_port(random.Random())}"
        self._folder = folder
        self._run_ms, self._max_batch = 2.0, 8

    def __str__(self) -> str:
        models = MODELS.format(
            run_ms=self._run_ms,
            max_batch=self._max_batch,
            folder=self._folder,
            counts_ms=COUNTS_MS,
            most_rows=MOST_ROWS,
        )
        return stub_config(f'lanes = {LANES}\nlisten = ["{self.remote}"]', cpus(SLOTS), models, REST)

    def change(self, how: str, pool: PoolProcess, client: Client) -> None:
        """`reload`: of what the pool decides itself; `reload workers`: all get a replacement; `load` and `unload`."""
        match how:
            case "reload":
                self._max_batch += 1
                self._reload(pool, client, "max_batch")
            case "reload workers":
                self._run_ms += 0.5
                self._reload(pool, client, "path")
            case "load":
                client.load(*SECOND, wait=False)
            case "unload":
                self._unload(client)

    def _reload(self, pool: PoolProcess, client: Client, key: str) -> None:
        pool.config.write_text(str(self).replace("@endpoint@", pool.endpoint))
        found = client.reload()
        # What was taken back, as no worker came up with it, is another than in the file, too.
        assert any(change.key.endswith(f" rows {key}") for change in found.changes), found

    def _unload(self, client: Client) -> None:
        """It may not be there: another pool has followed, or no worker came up with it."""
        if all(model.name != SECOND[0] for model in client.models()):
            client.load(*SECOND, wait=False)
        try:
            client.unload(SECOND[0])
        except InvalidConfig as error:
            if "not served" not in str(error):
                raise

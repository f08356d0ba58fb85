"""A real pool that asks for keys over TCP, and keys for its clients."""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pool import Client
from pool.keys import make_pair
from support.pool_process import PoolProcess, pool_process, stub_config


@dataclass(frozen=True)
class KeyedPool:
    """`folder`: of the pool's key, with `clients` in it; `strangers`: of keys that may not enter."""

    process: PoolProcess
    endpoint: str
    folder: Path

    @property
    def clients(self) -> Path:
        return self.folder / "clients"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"

    def secret(self, name: str) -> Path:
        """Of a key that may enter from now on."""
        path = self.clients / f"{name}.key_secret"
        if not path.exists():
            make_pair(self.clients, name)
        return path

    def client(self, name: str, **options: float) -> Client:
        return Client(self.endpoint, key=self.secret(name), server_key=self.server_key, **options)  # type: ignore[arg-type]


@contextlib.contextmanager
def keyed_pool(
    extra_pool: str = "", rest: str = "", address: str = "127.0.0.1", security: str = ""
) -> Iterator[KeyedPool]:
    """`rest`: further sections; `security`: further keys of that one. It has the key "alice"."""
    folder = Path(tempfile.mkdtemp(prefix="pt-keys-"))
    try:
        make_pair(folder, "server")
        make_pair(folder / "clients", "alice")
        section = f'[security]\nkey = "{folder}/server.key_secret"\nclients = "{folder}/clients"\n{security}\n'
        config = stub_config(f'listen = ["tcp://{address}:*"]\n{extra_pool}', rest=section + rest)
        with pool_process(config) as pool:
            listening = re.search(r"listening at (tcp://\S+) too", pool.text())
            assert listening is not None, pool.text()
            yield KeyedPool(pool, listening[1], folder)
    finally:
        shutil.rmtree(folder)

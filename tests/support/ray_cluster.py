"""A real Ray cluster for a test: several nodes on this machine, and nothing left of them afterwards.

The test's own process never imports Ray. The nodes' GPUs are numbers that Ray counts; the pools behind them serve with
stub workers on the CPU.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pool.client.discovery import SCHEME, Discovery
from support.pool_process import READY_S
from support.processes import alive, children, eventually

__all__ = ["GPUS", "LocalCluster", "descendants", "parent"]

GPUS = 2  # of each node that has some
STORE_BYTES = 80 << 20  # the least that Ray takes


class LocalCluster:
    """A head without GPUs."""

    def __init__(self, folder: Path) -> None:
        """`folder`: for the configuration and what models write. All of Ray has the environment of this process.

        `environ`: for what else has to do with Ray.
        """
        self.folder = folder
        self.config = folder / "config.toml"
        self._temp = tempfile.TemporaryDirectory(prefix="pt-ray-")  # sockets: the path must be short
        # Where `ray_current_cluster` lies too: another cluster of this machine keeps its own.
        self.environ = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": self._temp.name}
        self._log = folder / "nodes.log"
        with self._log.open("wb") as log:
            self._nodes = subprocess.Popen(
                [sys.executable, "-m", "support.ray_cluster"],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.environ,
            )
        self._started: set[int] = set()
        """The processes of the nodes."""
        self.address = str(self._ask("address"))
        self._remember()

    def _ask(self, *command: object) -> Any:
        assert self._nodes.stdin is not None
        assert self._nodes.stdout is not None
        self._nodes.stdin.write(json.dumps(command) + "\n")
        self._nodes.stdin.flush()
        answer = self._nodes.stdout.readline()
        assert answer, self._log.read_text()
        return json.loads(answer)

    def _remember(self) -> None:
        self._started |= {pid for pids in self._ask("processes") for pid in pids}

    @property
    def url(self) -> str:
        return f"{SCHEME}{self.address}"

    def add(self, gpus: int = GPUS) -> int:
        """Returns the number of the new node."""
        number = int(self._ask("add", gpus))
        self._remember()
        return number

    def kill(self, node: int) -> None:
        """As a machine that loses its power, but for what it started, which must see to its end itself."""
        self._ask("kill", node)

    def node_of(self, pool: int) -> int:
        """The one whose actor has started a pool."""
        raylet = parent(parent(pool))
        return next(number for number, pids in enumerate(self._ask("processes")) if raylet in pids)

    def restart_head(self, meanwhile: Callable[[], None]) -> None:
        """What speaks for the cluster ends at once, and begins again at the same address."""
        self.end_head()
        meanwhile()
        self._ask("begin_head")
        self._remember()

    def end_head(self) -> None:
        """Of the head's node all else lives on, as of any node that has lost it."""
        self._ask("end_head")

    def run(self, *arguments: str, timeout_s: float = 120.0) -> "subprocess.CompletedProcess[str]":
        """`pool ARGUMENTS`, in the folder."""
        done = self._done([sys.executable, "-P", "-m", "pool", *arguments], timeout_s)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def _done(self, argv: Sequence[str], timeout_s: float) -> "subprocess.CompletedProcess[str]":
        options: dict[str, Any] = {"cwd": self.folder, "env": self.environ, "timeout": timeout_s}
        return subprocess.run(argv, capture_output=True, text=True, check=False, **options)

    def python(self, script: str, *arguments: str, timeout_s: float = 120.0) -> str:
        """What a program prints. It is one of its own: Ray may end whoever has connected to it."""
        argv = [sys.executable, "-P", "-c", script, *arguments]
        done = self._done(argv, timeout_s)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def gpus(self) -> tuple[int, int]:
        """All that Ray counts, and those that it would give to a job now."""
        script = """
import ray, sys
ray.init(sys.argv[1], log_to_driver=False)
print("GPUs", int(ray.cluster_resources().get("GPU", 0)), int(ray.available_resources().get("GPU", 0)))
"""
        # Ray prints there as well, such as of a node that has died.
        said = self.python(script, self.address).splitlines()
        _, total, free = next(line for line in said if line.startswith("GPUs ")).split()
        return int(total), int(free)

    @contextlib.contextmanager
    def discovery(self) -> "Iterator[Discovery]":
        found = Discovery(self.address)
        try:
            yield found
        finally:
            found.close()

    def endpoints(self, count: int) -> tuple[str, ...]:
        """Of the pools, as a client finds them, once so many serve."""
        with self.discovery() as found:
            eventually(lambda: len(found.pools) == count, READY_S, lambda: found.pools)
            return tuple(found.pools.values())

    def close(self) -> None:
        """Nothing is left of it, even where Ray has ended the process that started the nodes."""
        ours = [self._nodes.pid, *descendants(self._nodes.pid), *self._started]
        assert self._nodes.stdin is not None
        assert self._nodes.stdout is not None
        self._nodes.stdin.close()
        self._nodes.wait(60)
        self._nodes.stdout.close()
        for pid in self._started:
            if self._temp.name in _command(pid):  # the number may be another process's by now
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not [pid for pid in ours if alive(pid)], 30.0, lambda: _commands(ours))
        self._temp.cleanup()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def descendants(pid: int) -> list[int]:
    found = children(pid)
    return [*found, *(below for each in found for below in descendants(each))]


def _commands(pids: Sequence[int]) -> list[str]:
    return [_command(pid) for pid in pids if alive(pid)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return ""


class Nodes:
    """In a process of their own, which imports Ray: Ray may end one that has lost the cluster's head."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 2, "num_gpus": 0, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args={**head, "object_store_memory": STORE_BYTES})
        self._nodes: list[Any] = [self._cluster.head_node]

    def address(self) -> str:
        return str(self._cluster.address)

    def add(self, gpus: int) -> int:
        """Returns its number."""
        self._nodes.append(self._cluster.add_node(num_cpus=1, num_gpus=gpus, object_store_memory=STORE_BYTES))
        return len(self._nodes) - 1

    def kill(self, number: int) -> None:
        self._cluster.remove_node(self._nodes[number], allow_graceful=False)

    def end_head(self) -> None:
        self._cluster.head_node.kill_gcs_server()

    def begin_head(self) -> None:
        self._cluster.head_node.start_gcs_server()

    def processes(self) -> list[list[int]]:
        """The pids of each node's."""
        return [[each.process.pid for kind in node.all_processes.values() for each in kind] for node in self._nodes]

    def close(self) -> None:
        self._cluster.shutdown()


def main() -> None:
    """Each line of standard input is a list in JSON, a command and its arguments; each gets a line in return.

    The nodes end with standard input.
    """
    nodes = Nodes()
    try:
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            sys.stdout.write(json.dumps(getattr(nodes, name)(*arguments)) + "\n")
            sys.stdout.flush()
    finally:
        nodes.close()


if __name__ == "__main__":
    main()

"""A pool inside a replica of Ray Serve, by the recipe on the page of clusters."""

import socket
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.ray_cluster import LocalCluster

pytestmark = [
    pytest.mark.ray,
    pytest.mark.tensorflow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("starlette") is None, reason="there is no Ray Serve: pip install 'ray[serve]'"),
]

PAGE = Path(__file__).parents[2] / "pool" / "docs" / "cluster.md"
# The page's machine is larger than a test's.
THEIRS = {'"num_cpus": 8': '"num_cpus": 1', "/srv/pool/config.toml": "@config@"}
PROGRAM = """
import json, os, signal, sys, time, urllib.request
from pathlib import Path
import ray
ray.init(sys.argv[1], log_to_driver=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(app)

def ask():
    body = json.dumps([[0.0] * 64] * 3).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[2]}/", body, timeout=60) as answer:
        return json.load(answer)

def pools():
    "Their pids, and their replicas'."
    for entry in Path("/proc").iterdir():
        try:
            if "--embedded" in (entry / "cmdline").read_text().split("\\0"):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if "ServeReplica" in Path("/proc", parent, "cmdline").read_text():
                    yield int(entry.name), int(parent)
        except OSError:
            pass

print(ask())
[(pool, replica)] = pools()
os.kill(replica, signal.SIGKILL)
deadline = time.monotonic() + 90
while os.path.exists(f"/proc/{pool}"):
    assert time.monotonic() < deadline, "the pool has outlived its replica"
    time.sleep(0.1)
while True:
    try:
        print(ask())
        break
    except OSError:
        assert time.monotonic() < deadline, "there is no other replica"
        time.sleep(0.5)
serve.shutdown()
"""


def recipe(config: Path) -> str:
    text = PAGE.read_text().partition("## A pool inside Ray Serve")[2]
    found = text.partition("```python\n")[2].partition("```")[0]
    for theirs, ours in THEIRS.items():
        assert found.count(theirs) == 1
        found = found.replace(theirs, ours)
    return found.replace("@config@", str(config))


def test_a_replica_has_a_pool_that_ends_with_it() -> None:
    with tempfile.TemporaryDirectory(prefix="pt-") as folder:
        cluster = LocalCluster(Path(folder))
        try:
            cluster.config.write_text('[pool]\ndevices = ["cpu"]\n')  # the demo
            cluster.add()
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            said = cluster.python(recipe(cluster.config) + PROGRAM, cluster.address, str(port), timeout_s=240.0)
            answers = [line for line in said.splitlines() if line.startswith("[")]
            assert len(answers) == 2
            assert answers[0] == answers[1]
            assert answers[0].count(",") == 2, "a digit for each image"
        finally:
            cluster.close()

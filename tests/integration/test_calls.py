"""What a lone job costs: Python and C calls together, as `sys.setprofile` counts them, in each process of its way."""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from pool import Client
from support.pools import StartPool

JOBS = 100
CONFIG = '[pool]\ndevices = ["cpu"]\n[[model]]\nname = "double"\npath = "stub:double"\nbatching = "on"\n'
X = {"x": np.ones((1, 1), np.float32)}


class Counter:
    def __init__(self) -> None:
        self.calls = 0
        self.is_on = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.is_on and event in ("call", "c_call"):
            self.calls += 1


def counted(job: Callable[[], object]) -> float:
    """Calls of one job, in this thread."""
    counter = Counter()
    for _ in range(20):
        job()
    gc.disable()
    sys.setprofile(counter)
    counter.is_on = True
    for _ in range(JOBS):
        job()
    counter.is_on = False
    sys.setprofile(None)
    gc.enable()
    return counter.calls / JOBS


def test_the_client_s_calls(start_pool: StartPool) -> None:
    pool = start_pool(CONFIG)
    with Client(pool.endpoint) as client:
        calls = counted(lambda: client.run("double", X))
    print(f"client: {calls}")
    assert calls <= 45


def test_the_lane_s_calls() -> None:
    import time

    from pool.wire.bodies import BATCH, HEAD, Kind, bodies
    from pool.wire.specs import job_spec
    from pool.wire.tensors import describe, encode
    from workers.arenas import Arenas
    from workers.calls import Calls
    from workers.lane import Lane
    from workers.stub import Backend

    settings = {"name": "double", "path": "stub:double", "allowed_batch_sizes": []}
    lane = Lane(Calls({"double": Backend().load(settings)}, {"double": settings}), Arenas(), 0, "cpu:0")
    spec, data = job_spec("double", "", None, describe(X)), b"".join(encode([*X.values()]))
    head = HEAD.pack(Kind.JOB, 0, 0, 0, len(spec), len(data), 1, 1.0, 0.0)
    frame = BATCH.pack(Kind.RUN, 0, 1, 1) + head + spec + data

    def job() -> None:  # as `Lane.serve` does it between receiving and sending
        came = time.monotonic()
        _, _, count, number = BATCH.unpack_from(frame)
        flags, answers = lane.run([*bodies(frame, BATCH.size)], came)
        answers.insert(0, BATCH.pack(Kind.DONE, flags, count, number))
        b"".join(answers)

    calls = counted(job)
    print(f"lane: {calls}")
    assert calls <= 60 + 3  # of which three are this test's own


IN_THE_POOL = """
import os, sys, threading, json
from pathlib import Path
sys.path.insert(0, {tests!r})
from integration.test_calls import Counter, JOBS, X
from pool import Client
from pool.config import load
from pool.serve.start import run

counter = Counter()

def ask():
    import time
    while True:
        try:
            client = Client({endpoint!r})
            break
        except ConnectionError:
            time.sleep(0.05)
    for _ in range(50):
        client.run("double", X)
    counter.is_on = True
    for _ in range(JOBS):
        client.run("double", X)
    counter.is_on = False
    print(json.dumps(counter.calls / JOBS), flush=True)
    client.stop()

threading.Thread(target=ask, daemon=True).start()
sys.setprofile(counter)  # of this thread alone
sys.exit(run(load(Path({config!r}))))
"""


def test_the_pool_s_calls(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(CONFIG)
    endpoint = f"ipc://{tmp_path}/pool.sock"
    tests = str(Path(__file__).parents[1])
    code = IN_THE_POOL.format(tests=tests, endpoint=endpoint, config=str(tmp_path / "config.toml"))
    environ = {**os.environ, "POOL_ENDPOINT": endpoint, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    calls = json.loads(done.stdout)
    print(f"pool: {calls}")
    assert calls <= 130

"""What a lone job costs the client and the pool: Python and C calls together, as `sys.setprofile` counts them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from pool import Client
from support.counting import counted
from support.pools import row

CONFIG = '[pool]\ndevices = ["cpu"]\n[[model]]\nname = "double"\npath = "stub:double"\nbatching = "on"\n'


def test_the_client_s_calls(client: Client) -> None:
    inputs = row()
    calls = counted(lambda: client.run("double", inputs))
    print(f"client: {calls}")
    assert calls <= 45


IN_THE_POOL = """
import os, sys, threading, json
from pathlib import Path
sys.path.insert(0, {tests!r})
from pool import Client
from pool.config import load
from pool.serve.start import run
from support.counting import Counter
from support.pools import row

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
        client.run("double", row())
    counter.is_on = True
    for _ in range(100):
        client.run("double", row())
    counter.is_on = False
    print(json.dumps(counter.calls / 100), flush=True)
    client.stop()

threading.Thread(target=ask, daemon=True).start()
sys.setprofile(counter)  # of this thread alone
sys.exit(run(load(Path({config!r})), None))
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

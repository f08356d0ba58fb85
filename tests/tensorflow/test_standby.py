"""What a standby does with TensorFlow: it imports it, and nothing else."""

import os
import signal
import subprocess
import sys
import time

import pytest

from harness import eventually, pool_process, stub_config
from pool.demo import demo_folder

pytestmark = [pytest.mark.tensorflow, pytest.mark.long]

LOOKS = """
import sys
from workers.worker import _Backends
_Backends().prepare(["/models/digits"])
assert "tensorflow" in sys.modules
from tensorflow.python.eager import context
made = context.context_safe()
assert made is None or not (made._initialized or made._physical_devices), "it has looked for devices"
assert made is None or made._context_handle is None, "it has opened them"
"""
MODELS = f'[[model]]\nname = "digits"\npath = "{demo_folder() / "digits"}"\n'


def test_the_import_alone_touches_no_device() -> None:
    environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    found = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, text=True, timeout=120, env=environ)
    assert found.returncode == 0, found.stderr


def test_the_next_answer_does_not_wait_for_an_import() -> None:
    with pool_process(stub_config("standby = true", '["cpu"]', MODELS)) as pool, pool.client() as client:
        eventually(lambda: (client.status()["slots"][0]["standby"] or {}).get("state") == "READY", 120.0)
        standby = client.status()["slots"][0]["standby"]["pid"]
        os.kill(client.status()["slots"][0]["pid"], signal.SIGKILL)
        began = time.monotonic()
        assert client.run("digits", [[0.0] * 64], timeout=60)["label"].shape == (1,)
        took_s = time.monotonic() - began
        assert client.status()["slots"][0]["pid"] == standby
        imports_s = pool_import_s()
        assert took_s < imports_s, f"{took_s:.2f} s, and an import alone takes {imports_s:.2f} s"


def pool_import_s() -> float:
    """As long as an import takes here and now."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "from workers.tf.backend import TensorFlowBackend"], check=True, timeout=120)
    return time.monotonic() - began

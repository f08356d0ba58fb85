"""What a standby does with TensorFlow: it imports it, and nothing else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pool.config.load import demo_folder
from support.pool_process import pool_process, stub_config
from support.processes import eventually, pid_of

pytestmark = [pytest.mark.tensorflow, pytest.mark.replacement]

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

        def stands_by() -> int:
            standby = client.status().slots[0].standby
            return pid_of(standby) if standby is not None and standby.state == "READY" else 0

        eventually(lambda: stands_by() > 0, 120.0)
        standby = stands_by()
        assert "/tensorflow/" in Path(f"/proc/{standby}/maps").read_text(), "it was imported before it is needed"
        os.kill(pid_of(client.status().slots[0]), signal.SIGKILL)
        future = client.submit("digits", [[0.0] * 64], timeout=100)
        assert future.result()["label"].shape == (1,)
        assert future.timeline is not None
        slot = client.status().slots[0]
        assert (slot.pid, slot.incarnation) == (standby, 2)
        assert f"leased to slot 0 incarnation {slot.incarnation}" in client.explain(future.timeline.job).history[-2]

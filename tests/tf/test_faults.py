"""A part of the crash matrix (`tests/faults/test_matrix.py`) with TensorFlow itself in the worker."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pool import Client, errors
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, eventually, freeze, pid_of

pytestmark = [pytest.mark.tensorflow, pytest.mark.faults]

REST = '[health]\nheartbeat = "200ms"\nhung_after = "15s"\n[restart]\nbackoff_max = "100ms"\n'
# The function that a SavedModel calls by its token lives in the worker alone; there it ends the process.
LEAVER = """
import os, sys
if "workers" in sys.orig_argv:
    from workers import worker

    def leave(status):
        if status >= 0:
            os._exit(int(status))
        return status

    serving = worker._Backends.serving

    def register(self, *given):
        backend = serving(self, *given)  # which imports TensorFlow
        from tensorflow.python.ops import script_ops

        script_ops._py_funcs._funcs["function_of_the_test"] = leave
        return backend

    worker._Backends.serving = register
"""


@pytest.fixture(scope="module")
def waiting(models: Path) -> Path:
    """serving_default: reads the file at `path` until it says something else than "wait", and returns that."""
    folder = models / "waiting"

    class Waiting(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.string, name="path")])
        def wait(self, path: object) -> dict[str, object]:
            read = tf.raw_ops.ReadFile
            (said,) = tf.while_loop(
                lambda said: tf.equal(said, "wait"), lambda _: (read(filename=path),), (read(filename=path),)
            )
            return {"said": said}

    module = Waiting()
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.wait})
    return folder


@pytest.fixture(scope="module")
def leaving(models: Path) -> Path:
    """serving_default: a Python function is called with `status`."""
    folder = models / "leaving"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        status = tf.compat.v1.placeholder(tf.int64, [], name="status")
        left = tf.raw_ops.PyFunc(input=[status], token="function_of_the_test", Tout=[tf.int64])[0]
        left.set_shape([])
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"status": status}, {"left": left})
    return folder


@pytest.fixture(scope="module")
def greedy(models: Path) -> Path:
    """serving_default: sums so many GiB of memory that is filled."""
    folder = models / "greedy"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        gibs = tf.compat.v1.placeholder(tf.int64, [], name="gibs")
        filled = tf.fill(tf.stack([gibs, tf.constant(1 << 30, tf.int64)]), tf.constant(1, tf.uint8))
        total = tf.reduce_max(filled)
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"gibs": gibs}, {"total": total})
    return folder


@pytest.fixture(scope="module")
def pool(waiting: Path, leaving: Path, greedy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolProcess]:
    hook = tmp_path_factory.mktemp("hook")
    (hook / "sitecustomize.py").write_text(LEAVER)
    models = "".join(
        f'[[model]]\nname = "{path.name}"\npath = "{path}"\nbatching = "always"\ndevices = "all"\nwarmup = false\n'
        for path in (waiting, leaving, greedy)
    )
    with pool_process(stub_config("lanes = 1", models=models, rest=REST), {"PYTHONPATH": str(hook)}) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client
        await_workers(client)
        assert pool.workers() == sorted(slot.pid for slot in client.status().slots)


def await_workers(client: Client) -> None:
    """Each imports TensorFlow anew, at the same time as the others."""
    eventually(lambda: all(slot.state == "READY" for slot in client.status().slots), 90)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP])
def test_a_signal_in_the_middle_of_a_run(client: Client, number: signal.Signals, tmp_path: Path) -> None:
    """The run ends no sooner than the worker can do nothing any more; the next one at once."""
    gate = tmp_path / "gate"
    gate.write_bytes(b"wait")
    future = client.submit("waiting", np.array(str(gate).encode(), object), timeout=60)
    eventually(lambda: any(slot.busy_lanes for slot in client.status().slots))
    (victim,) = [pid_of(slot) for slot in client.status().slots if slot.busy_lanes]
    if number == signal.SIGSTOP:
        freeze(victim)
    else:
        os.kill(victim, number)
        eventually(lambda: not alive(victim))
    (tmp_path / "next").write_bytes(b"go on")
    (tmp_path / "next").rename(gate)
    assert future.result(60)["said"].item() == b"go on"
    assert future.timeline.attempts == 2
    eventually(lambda: not alive(victim))


def test_a_python_function_of_the_graph_that_exits(client: Client) -> None:
    assert int(client.run("leaving", -1, timeout=60)["left"]) == -1
    with pytest.raises(errors.Quarantined, match="died: exit status 3"):
        client.run("leaving", 3, timeout=60)
    await_workers(client)
    assert int(client.run("leaving", -2, timeout=60)["left"]) == -2


def test_more_memory_than_there_is(client: Client, pool: PoolProcess, tmp_path: Path) -> None:
    """More than the address space. TensorFlow asks for it for ten seconds, then says so; the worker lives on."""
    workers = pool.workers()
    with pytest.raises(errors.OutOfMemory):
        client.run("greedy", 1 << 20, timeout=60)
    (tmp_path / "said").write_bytes(b"go on")
    path = np.array(str(tmp_path / "said").encode(), object)
    assert client.run("waiting", path, timeout=60)["said"].item() == b"go on"
    assert pool.workers() == workers

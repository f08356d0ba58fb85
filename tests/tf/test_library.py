"""What a process has of TensorFlow once: its devices, the options of its Sessions, libraries of ops."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pool.wire import Exit
from tf.making import TENSORFLOW, backend_with, run, save_graph, v1
from workers import probe
from workers.backend import CannotLoad, Unfit
from workers.tf.library import open_session, session_config, tf

# As `IsBF16SupportedByOneDNNOnThisCPU` asks. Elsewhere TensorFlow leaves a graph in float32.
HAS_BFLOAT16 = bool({"avx512f", "avx_ne_convert"} & set(Path("/proc/cpuinfo").read_text().split()))


def test_a_gpu_worker_without_a_gpu_says_what_to_install(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-promised")
    for counts, advice in (({}, "pip install 'tf-worker-pool[gpu]'"), ({"GPU": 0}, "leave GPU out of device_count")):
        config = session_config({**TENSORFLOW, "device_count": counts}, 1, xla=False, mixed_precision=False)
        with pytest.raises(Unfit) as caught:
            open_session(config, gpus=1)
        assert caught.value.status is Exit.WRONG_DEVICES
        told = "sees 0 GPUs, but this worker should have 1; CUDA_VISIBLE_DEVICES is 'GPU-promised'; "
        assert told in str(caught.value)
        assert advice in str(caught.value)


def test_without_tensorflow_it_says_what_to_install(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise ImportError('libcudart.so.12:\\nnot here')")
    show = "import sys; sys.path[:0] = sys.argv[1:]\n"
    show += "try: import workers.tf.model\nexcept BaseException as e: print(e.status, e)"
    told = subprocess.check_output([sys.executable, "-c", show, str(tmp_path)], text=True)
    assert told.startswith(
        f"{Exit.BACKEND_MISSING:d} TensorFlow cannot be imported: ImportError: libcudart.so.12: not here; "
    )


def test_a_device_that_computes_wrongly_is_told(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["probe", "0"])
    monkeypatch.setattr(probe, "np", SimpleNamespace(ones=np.zeros))
    with pytest.raises(ValueError, match=r"a product of ones is 0\.0 to 0\.0, but should be 512"):
        probe.main()


@pytest.mark.parametrize(("switch", "mark"), [("xla", "_XlaRun"), ("mixed_precision", "Cast")])
def test_a_switch_changes_the_graph_that_runs(load, tmp_path, switch, mark):
    def build():
        x = v1.placeholder(tf.float32, [None, 64])
        w = v1.get_variable("w", [64, 64], initializer=v1.glorot_uniform_initializer(seed=1))
        return {"serving_default": ({"x": x}, {"y": tf.nn.relu(tf.nn.relu(x @ w) @ w) + 1.0})}

    def ops(model):
        options, metadata = v1.RunOptions(output_partition_graphs=True), v1.RunMetadata()
        bound = model._bound["serving_default"]
        for _ in range(4):  # XLA compiles what it meets again
            model._session.run(bound.fetches, {bound.feeds["x"]: x}, options, metadata)
        return {node.op for graph in metadata.partition_graphs for node in graph.node}

    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    folder = save_graph(tmp_path / "m", build)
    plain, switched = load(folder), load(folder, **{switch: True})
    np.testing.assert_allclose(run(switched, {"x": x})["y"], run(plain, {"x": x})["y"], atol=0.1)
    assert mark not in ops(plain)
    assert mark in ops(switched) or (switch == "mixed_precision" and not HAS_BFLOAT16)


def test_what_is_no_library_of_ops(tmp_path):
    path = tmp_path / "text.so"
    path.write_text("none")
    with pytest.raises(CannotLoad) as caught:
        backend_with(op_libraries=[str(path)])
    assert str(caught.value).startswith(f"op_libraries of [tensorflow]: {path} cannot be loaded into TensorFlow 2.")
    assert "\n" not in str(caught.value)

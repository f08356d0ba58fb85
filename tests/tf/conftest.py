"""Models for these tests, each built once, and a backend that loads them."""

import contextlib
import os
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pool.wire.worker_messages import ModelSettings, TensorFlowSettings

# As the pool sets it; before TensorFlow is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@contextlib.contextmanager
def _in_silence() -> Iterator[None]:
    """What its C++ says as it is loaded is said to no terminal: pytest keeps it only where a run is one process."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


with warnings.catch_warnings(), _in_silence():
    # TensorFlow's own modules use what numpy, protobuf and Python deprecate.
    warnings.simplefilter("ignore")
    from workers.tf.backend import TensorFlowBackend
    from workers.tf.library import tf
    from workers.tf.model import TensorFlowModel

    # Not by CUDA_VISIBLE_DEVICES: the pools that these tests start would inherit it.
    tf.config.set_visible_devices([], "GPU")

SETTINGS = TensorFlowSettings(
    allow_growth=True,
    per_process_gpu_memory_fraction=0.0,
    allow_soft_placement=True,
    log_device_placement=False,
    intra_op_parallelism_threads=0,
    inter_op_parallelism_threads=0,
    device_count={},
    jit=False,
)

GUESSLANG = "guesslang==2.2.1"

Load = Callable[[Path], TensorFlowModel]
InProcess = Callable[[Path, str, Mapping[str, Any]], dict[str, Any]]


@pytest.fixture(scope="session")
def tensorflow_settings() -> TensorFlowSettings:
    return SETTINGS


@pytest.fixture(scope="session")
def backend() -> TensorFlowBackend:
    return TensorFlowBackend(SETTINGS, gpus=0)


@pytest.fixture(scope="session")
def load(backend: TensorFlowBackend) -> Load:
    """Loads a folder, once for all tests."""
    loaded: dict[Path, TensorFlowModel] = {}

    def load_once(folder: Path) -> TensorFlowModel:
        if folder not in loaded:
            loaded[folder] = backend.load(ModelSettings(folder.name, str(folder), True))
        return loaded[folder]

    return load_once


@pytest.fixture(scope="session")
def in_process() -> Iterator[InProcess]:
    """What TensorFlow itself answers: the loader and `Session.run` in this process, without a callable."""
    opened: dict[Path, tuple[Any, Any]] = {}

    def run(folder: Path, signature: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if folder not in opened:
            session = tf.compat.v1.Session(graph=tf.Graph())
            with session.graph.as_default():
                meta_graph = tf.compat.v1.saved_model.loader.load(session, ["serve"], str(folder))
            opened[folder] = session, meta_graph.signature_def
        session, signatures = opened[folder]
        definition = signatures[signature]
        feeds = {definition.inputs[name].name: value for name, value in inputs.items()}
        answer: dict[str, Any] = session.run({name: info.name for name, info in definition.outputs.items()}, feeds)
        return answer

    yield run
    for session, _ in opened.values():
        session.close()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def two_signatures(models: Path) -> Path:
    """serving_default: two inputs, four outputs, one weighted by a variable; strings: bytes in, bytes out."""

    class Two(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights = tf.Variable([[1.0, 2.0, 3.0]])

        @tf.function(input_signature=[tf.TensorSpec([None, 3], name="a"), tf.TensorSpec([None, 3], name="b")])
        def numbers(self, a: object, b: object) -> dict[str, object]:
            total = a + b * self.weights
            return {"total": total, "product": a * b, "first": total[:, 0], "sum": tf.reduce_sum(total)}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def strings(self, text: object) -> dict[str, object]:
            joined = tf.strings.reduce_join(text)
            return {"same": tf.identity(text), "length": tf.strings.length(text), "joined": joined}

    module = Two()
    folder = models / "two_signatures"
    signatures = {"serving_default": module.numbers, "strings": module.strings}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


@pytest.fixture(scope="session")
def keras_export(models: Path) -> Path:
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential(
        [
            tf.keras.Input((4,), name="features"),
            tf.keras.layers.Dense(8, activation="relu"),
            tf.keras.layers.BatchNormalization(),
            tf.keras.layers.Dropout(0.5),
            tf.keras.layers.Dense(3, activation="softmax"),
        ]
    )
    folder = models / "keras_export"
    model.export(str(folder), verbose=False)
    return folder


@pytest.fixture(scope="session")
def tf1_table(models: Path) -> Path:
    """TensorFlow 1: word → its number, by a hash table that the init op fills, plus a variable."""
    folder = models / "tf1_table"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        words = tf.compat.v1.placeholder(tf.string, [None], name="words")
        filling = tf.lookup.KeyValueTensorInitializer(["cat", "dog"], tf.constant([1, 2], tf.int64))
        table = tf.lookup.StaticHashTable(filling, -1)
        offset = tf.compat.v1.get_variable("offset", initializer=tf.constant(10, tf.int64), use_resource=False)
        number = tf.identity(table.lookup(words) + offset, name="number")
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()])
        tf.compat.v1.saved_model.simple_save(
            session,
            str(folder),
            inputs={"words": words},
            outputs={"number": number, "twice": number * 2, "words": words},
            legacy_init_op=tf.compat.v1.tables_initializer(),
        )
    return folder


@pytest.fixture(scope="session")
def counter(models: Path) -> Path:
    """serving_default: adds `step` to a variable, in a function in a function; peek: the variable."""

    class Counter(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.count = tf.Variable(0, dtype=tf.int64)

        @tf.function
        def add(self, step: object) -> object:
            return self.count.assign_add(step)

        @tf.function(input_signature=[tf.TensorSpec([], tf.int64, name="step")])
        def count_up(self, step: object) -> dict[str, object]:
            return {"count": self.add(step) if step > 0 else self.count.read_value()}

        @tf.function(input_signature=[tf.TensorSpec([], tf.int64, name="plus")])
        def peek(self, plus: object) -> dict[str, object]:
            return {"count": self.count + plus}

    module = Counter()
    folder = models / "counter"
    signatures = {"serving_default": module.count_up, "peek": module.peek}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


@pytest.fixture(scope="session")
def keeper(models: Path) -> Path:
    """serving_default: stores `value` and returns what was stored; stored: what is."""

    class Keeper(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kept = tf.Variable(tf.zeros([1024]))

        @tf.function(input_signature=[tf.TensorSpec([1024], name="value")])
        def keep(self, value: object) -> dict[str, object]:
            return {"kept": tf.reduce_sum(self.kept.assign(value))}

        @tf.function(input_signature=[])
        def stored(self) -> dict[str, object]:
            return {"kept": tf.identity(self.kept)}

    module = Keeper()
    folder = models / "keeper"
    signatures = {"serving_default": module.keep, "stored": module.stored}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return folder


@pytest.fixture(scope="session")
def failing(models: Path) -> Path:
    """serving_default: fails in the op named "picky" unless `index` is 0 or 1."""
    folder = models / "failing"
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        index = tf.compat.v1.placeholder(tf.int32, [None], name="index")
        picked = tf.gather(tf.constant([1.0, 2.0]), index, name="picky")
        tf.compat.v1.saved_model.simple_save(session, str(folder), {"index": index}, {"picked": picked})
    return folder


@pytest.fixture(scope="session")
def guesslang(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TensorFlow 1 Estimator's export made by others, 2.6 MB; needs a package index."""
    folder = tmp_path_factory.mktemp("guesslang")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), GUESSLANG]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        pytest.skip(f"pip download {GUESSLANG} took more than 60 s")
    if done.returncode:
        pytest.skip(f"pip download {GUESSLANG} failed: {done.stderr.strip()[-200:]}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder / "guesslang" / "data" / "model"

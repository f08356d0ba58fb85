"""Keras files are converted once, in a process of their own, and answer as the SavedModel that Keras exports."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad, LoadFailed
from workers.tf import keras_file
from workers.tf.keras_conversion import Unconvertible, cause, convert

pytestmark = [
    pytest.mark.tensorflow,
    # Keras saves its variables so.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

layers = tf.keras.layers


@pytest.fixture(scope="module")
def functional(models):
    """Two inputs, two outputs, batch normalisation; as a file, and what Keras exports of it."""
    tf.keras.utils.set_random_seed(1)
    features, word = tf.keras.Input((4,), name="features"), tf.keras.Input((), dtype="int32", name="word")
    hidden = layers.BatchNormalization()(layers.Dense(8, activation="gelu")(features))
    joined = layers.Concatenate()([hidden, layers.Embedding(10, 3)(word)])
    outputs = {"score": layers.Dense(1, name="score")(joined), "class": layers.Softmax(name="class")(joined)}
    model = tf.keras.Model({"features": features, "word": word}, outputs)
    model.save(models / "functional.keras")
    model.export(str(models / "functional"), verbose=False)
    return models / "functional.keras"


@pytest.fixture(scope="module")
def sequential(models):
    tf.keras.utils.set_random_seed(2)
    model = tf.keras.Sequential([tf.keras.Input((4,)), layers.Dense(3, activation="softmax")])
    # Keras warns that it is a legacy format: that is why people have such files.
    model.save(models / "sequential.h5")
    return models / "sequential.h5"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("state") / "converted"


def load(backend, path, cache=""):
    return backend.load(ModelSettings("m", str(path), True, cache=str(cache)))


def run(model, feeds):
    return model.run("serving_default", feeds, tuple(model.info.signatures["serving_default"].outputs))


FEATURES = np.random.default_rng(3).standard_normal((5, 4)).astype(np.float32)


@pytest.mark.models
def test_a_file_answers_as_what_keras_exports(backend, functional, cache, in_process, monkeypatch):
    feeds = {"features": FEATURES, "word": np.arange(5, dtype=np.int32)}
    expected = in_process(functional.with_suffix(""), "serving_default", feeds)
    model = load(backend, functional, cache)
    answer = run(model, feeds)
    assert answer.keys() == expected.keys() == {"score", "class"}
    for name, value in answer.items():
        np.testing.assert_array_equal(value, expected[name])
    # The same content is not converted again, whatever its name is.
    monkeypatch.setattr(keras_file, "_convert", None)
    copy = functional.with_name("copy.keras")
    copy.write_bytes(functional.read_bytes())
    np.testing.assert_array_equal(run(load(backend, copy, cache), feeds)["score"], expected["score"])
    (made,) = [entry for entry in cache.iterdir() if entry.is_dir()]
    assert (cache.stat().st_mode & 0o777, made.name[:64]) == (0o700, made.name.partition("-")[0])


@pytest.fixture
def in_this_process(monkeypatch):
    """Converts here, which saves a start of TensorFlow."""

    def convert_here(path, folder):
        try:
            convert(path, folder)
        except Unconvertible as error:
            raise CannotLoad(str(error)) from error

    monkeypatch.setattr(keras_file, "_convert", convert_here)


@pytest.mark.usefixtures("in_this_process")
def test_an_h5_file_without_a_cache(backend, sequential, tmp_path, monkeypatch):
    monkeypatch.setattr(keras_file.tempfile, "tempdir", str(tmp_path))
    model = load(backend, sequential)
    (answer,) = run(model, dict.fromkeys(model.info.signatures["serving_default"].inputs, FEATURES)).values()
    expected = tf.keras.models.load_model(sequential)(FEATURES).numpy()
    np.testing.assert_allclose(answer, expected, rtol=1e-6)
    assert list(tmp_path.glob("pool-keras-*")) == []


@pytest.mark.usefixtures("in_this_process")
def test_of_a_file_that_is_refused_nothing_is_left_behind(backend, tmp_path, monkeypatch):
    folders = []
    monkeypatch.setattr(keras_file.tempfile, "tempdir", str(tmp_path))
    make = keras_file.tempfile.mkdtemp
    monkeypatch.setattr(keras_file.tempfile, "mkdtemp", lambda **given: folders.append(make(**given)) or folders[-1])
    file = save(tmp_path / "m.keras", Own())
    with pytest.raises(CannotLoad, match="your own code"):
        load(backend, file)
    assert any("pool-keras-" in folder for folder in folders)
    assert list(tmp_path.glob("pool-keras-*")) == []


@pytest.mark.usefixtures("in_this_process")
def test_where_nothing_can_be_kept_it_is_served_all_the_same(backend, sequential, tmp_path, caplog):
    (tmp_path / "state").touch()
    model = load(backend, sequential, tmp_path / "state" / "converted")
    assert list(model.info.signatures)
    assert f"model m: its converted form cannot be stored: [Errno 17] File exists: '{tmp_path}/state'" in caplog.text


class Own(layers.Layer):
    def call(self, x):
        return x * 2


def refused(path, tmp_path):
    with pytest.raises(Unconvertible) as caught:
        convert(path, tmp_path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def save(path, *more):
    tf.keras.Sequential([tf.keras.Input((4,)), *more]).save(path)
    return path


@pytest.mark.parametrize("name", ["m.keras", "m.h5"])
def test_code_in_a_file_is_never_run(tmp_path, name):
    path = save(tmp_path / name, layers.Lambda(lambda x: x * 2))
    assert "it has a Lambda layer or function, and the pool does not run code from a file" in refused(path, tmp_path)


def test_nor_is_that_of_a_function(tmp_path):
    dense = {"class_name": "Dense", "config": {"activation": {"class_name": "__lambda__", "config": {"value": "4wE"}}}}
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": [dense]}}))
    assert "it has a Lambda layer or function, and the pool does not run code" in refused(
        tmp_path / "m.keras", tmp_path
    )


def test_of_what_keras_says_the_cause_is_told():
    nested = "<class 'Sequential'> could not be deserialized.\n\nException encountered: <class 'Dense'> could not\n\n"
    assert cause(TypeError(f"{nested}config={{}}.\n\nException encountered: no such unit\nelsewhere")) == "no such unit"
    assert cause(ValueError("\n  plain \nmore")) == "plain"
    assert cause(KeyError()) == "KeyError"


@pytest.mark.parametrize("name", ["m.keras", "m.h5"])
def test_a_layer_of_ones_own(tmp_path, name):
    told = refused(save(tmp_path / name, Own()), tmp_path)
    assert told.startswith("it needs 'Own', which is your own code and not in the file: ")
    assert told.endswith("save it as a SavedModel with model.export(folder)")


def test_weights_alone(tmp_path):
    model = tf.keras.Sequential([tf.keras.Input((4,)), layers.Dense(1)])
    model.save_weights(tmp_path / "m.weights.h5")
    assert "it holds weights but no model" in refused(tmp_path / "m.weights.h5", tmp_path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x89HDF\r\n\x1a\nrest"])
def test_what_is_no_keras_file(tmp_path, content):
    (tmp_path / "m.h5").write_bytes(content)
    with pytest.raises((Unconvertible, OSError)):
        convert(tmp_path / "m.h5", tmp_path)


def test_an_archive_of_something_else(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("notes.txt", "none")
    assert "it has no config.json" in refused(tmp_path / "m.keras", tmp_path)


def child_that(monkeypatch, tmp_path, source):
    """The process that converts is this program instead."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{source}\n")
    python.chmod(0o755)
    monkeypatch.setattr(keras_file.sys, "executable", str(python))


@pytest.mark.parametrize(
    ("source", "error", "told"),
    [
        ('echo noise; echo \'{"failed": "no such layer"}\'', CannotLoad, "m.keras: no such layer"),
        ("echo out of memory >&2; kill -9 $$", LoadFailed, "converts it died of signal 9: out of memory"),
        ("exit 70", LoadFailed, "converts it ended with 70: it printed nothing"),
    ],
)
def test_how_the_conversion_ends(backend, tmp_path, monkeypatch, source, error, told):
    child_that(monkeypatch, tmp_path, source)
    (tmp_path / "m.keras").write_bytes(b"PK")
    with pytest.raises(error) as caught:
        load(backend, tmp_path / "m.keras", tmp_path / "state" / "converted")
    assert str(caught.value).startswith("model m: ")
    assert str(caught.value).endswith(told)
    assert not [entry for entry in (tmp_path / "state" / "converted").iterdir() if entry.is_dir()]


def test_the_conversion_sees_no_gpu(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-1")
    child_that(monkeypatch, tmp_path, 'echo "{\\"failed\\": \\"devices <$CUDA_VISIBLE_DEVICES> $KERAS_BACKEND $*\\"}"')
    (tmp_path / "m.keras").write_bytes(b"PK")
    with pytest.raises(CannotLoad, match=r"devices <> tensorflow -P -m workers\.tf\.keras_conversion \d+ "):
        load(backend, tmp_path / "m.keras", tmp_path / "state" / "converted")


def test_a_subclassed_model_is_served_as_it_is_exported(load, models, in_process):
    class Subclassed(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x):
            return {"twice": self.dense(x) * 2, "half": tf.cast(x, tf.bfloat16)}

    tf.keras.utils.set_random_seed(4)
    model = Subclassed()
    model(FEATURES)
    folder = Path(models / "subclassed")
    model.export(str(folder), verbose=False)
    loaded = load(folder)
    (name,) = loaded.info.signatures["serving_default"].inputs
    expected = in_process(folder, "serving_default", {name: FEATURES})
    answer = run(loaded, {name: FEATURES})
    assert json.dumps(sorted(answer)) == json.dumps(["half", "twice"])
    for output, value in answer.items():
        assert value.dtype == expected[output].dtype
        np.testing.assert_array_equal(value, expected[output])

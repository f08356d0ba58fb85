"""Keras files are converted once, in a process of their own, and answer as Keras does."""

import shutil
import zipfile

import numpy as np
import pytest

from tf.making import MODEL, backend_with, run
from workers.backend import CannotLoad, LoadFailed
from workers.tf import keras
from workers.tf.keras import convert
from workers.tf.library import tf

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # in Keras

layers = tf.keras.layers
FEATURES = np.random.default_rng(3).standard_normal((5, 4)).astype(np.float32)


def save(path, *more):
    tf.keras.Sequential([tf.keras.Input((4,), name="x"), *more]).save(path)
    return path


def test_a_file_is_converted_in_a_child_once(tmp_path, monkeypatch):
    path = save(tmp_path / "[f].keras", layers.BatchNormalization(), layers.Dense(8, activation="gelu"))
    shutil.copy(path, tmp_path / "copy.keras")
    backend, expected = backend_with(tmp_path / "state"), tf.keras.models.load_model(path)(FEATURES).numpy()
    own = save(tmp_path / "own.keras", layers.Lambda(lambda x: x * 2))
    with pytest.raises(CannotLoad, match=r"own.keras: it has a Lambda layer"):
        backend.load({**MODEL, "path": str(own)})
    for name in (path.name, "copy.keras"):
        (answer,) = run(backend.load({**MODEL, "path": str(tmp_path / name)}), {"x": FEATURES}).values()
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)
        monkeypatch.setattr(keras, "_convert_apart", None)  # the same content is not converted again
    assert len([*(tmp_path / "state" / "keras").iterdir()]) == 1
    assert (tmp_path / "state" / "keras").stat().st_mode & 0o777 == 0o700


def test_where_nothing_can_be_kept_it_says_so(tmp_path):
    path = save(tmp_path / "m.h5", layers.Dense(3))
    (tmp_path / "state").touch()
    with pytest.raises(LoadFailed, match=r"cannot be kept in .*keras: Not a directory; set `state`"):
        backend_with(tmp_path / "state").load({**MODEL, "path": str(path)})


@pytest.mark.parametrize(("kind", "style"), [("keras", "functional"), ("h5", "sequential")])
def test_a_stateful_one_has_the_rows_that_its_file_fixes(load, tmp_path, kind, style, monkeypatch):
    monkeypatch.setattr(keras, "_convert_apart", convert)  # here, which saves a start of TensorFlow
    x, rnn = tf.keras.Input(batch_shape=(2, 3, 4), name="x"), layers.SimpleRNN(5, stateful=True)
    model = tf.keras.Sequential([x, rnn]) if style == "sequential" else tf.keras.Model(x, rnn(x))
    model.save(tmp_path / f"m.{kind}")
    loaded = load(tmp_path / f"m.{kind}")
    assert loaded.is_stateful
    assert loaded.signatures["serving_default"].inputs["x"].shape == (2, 3, 4)
    given = np.ones((2, 3, 4), np.float32)
    rnn.reset_states()
    for _ in range(2):  # the second differs from the first
        (answer,) = run(loaded, {"x": given}).values()
        np.testing.assert_allclose(answer, model(given).numpy(), rtol=1e-5)


class Own(layers.Layer):
    call = staticmethod(lambda x: x * 2)


@pytest.mark.parametrize("name", ["m.keras", "m.h5"])
def test_code_is_never_run(tmp_path, name):
    for layer, told in (
        (layers.Lambda(lambda x: x * 2), "it has a Lambda layer or function, and the pool does not run code"),
        (Own(), "Keras cannot load or export it: .*'Own'.*; in the program with its code, save it as a SavedModel"),
    ):
        with pytest.raises(CannotLoad, match=told):
            convert(save(tmp_path / name, layer), str(tmp_path / "out"))


def test_what_is_no_model(tmp_path):
    tf.keras.Sequential([tf.keras.Input((4,)), layers.Dense(1)]).save_weights(tmp_path / "m.weights.h5")
    (tmp_path / "m.h5").write_bytes(b"no archive")
    for name, entry in (("m.keras", "notes.txt"), ("spelled.keras", "config.json")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(entry, '{"layers": [{"class_name":"\\u004cambda"}]}')
    told_of = {"m.weights.h5": "holds weights but no", "m.h5": "neither a Keras", "m.keras": "no config"}
    for name, told in (told_of | {"spelled.keras": "it has a Lambda layer"}).items():
        with pytest.raises(CannotLoad, match=told):
            convert(tmp_path / name, str(tmp_path / "out"))


def test_keras_real_cause_is_told(tmp_path):
    x = tf.keras.Input((4,), name="i 1")
    tf.keras.Model(x, layers.Dense(2, name="o 2")(x)).save(tmp_path / "m.keras")
    with pytest.raises(CannotLoad, match=r"export it: .*'o 2' is not a valid scope name. A scope name has to match "):
        convert(tmp_path / "m.keras", str(tmp_path / "out"))

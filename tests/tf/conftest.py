"""One import of TensorFlow and one backend for all tests."""

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tf.making import MODEL, backend_with
    from workers.backend import CannotLoad


@pytest.fixture(scope="session")
def load(tmp_path_factory):
    backend = backend_with(tmp_path_factory.mktemp("state"))
    return lambda path, **settings: backend.load({**MODEL, "path": str(path), **settings})


@pytest.fixture(scope="session")
def refusal(load):
    """Why a path is refused: one line that begins with the model's name and path."""

    def why(path, **settings):
        with pytest.raises(CannotLoad) as caught:
            load(path, **settings)
        text = str(caught.value)
        assert text.startswith(f"model m: {path}")
        assert "\n" not in text
        return text

    return why


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return tmp_path_factory.mktemp("models")

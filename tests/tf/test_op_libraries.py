"""What is no library of custom ops is told in one line; `test_settings_in_force.py` runs an op of one."""

from dataclasses import replace

import pytest
import tensorflow as tf

from workers.backend import CannotLoad
from workers.tf.backend import TensorFlowBackend

pytestmark = pytest.mark.tensorflow


def refusal(tensorflow_settings, library):
    with pytest.raises(CannotLoad) as caught:
        TensorFlowBackend(replace(tensorflow_settings, op_libraries=(str(library),)), gpus=0)
    text = str(caught.value)
    assert text.startswith(f"op_libraries of [tensorflow]: {library} ")
    assert "\n" not in text
    return text


def test_a_library_that_is_not_there(tensorflow_settings, tmp_path):
    assert "is not a file: give a library (.so)" in refusal(tensorflow_settings, tmp_path / "ops.so")


def test_what_is_no_library(tensorflow_settings, tmp_path):
    (tmp_path / "ops.so").write_text("none")
    assert f"cannot be loaded into TensorFlow {tf.__version__}: " in refusal(tensorflow_settings, tmp_path / "ops.so")

"""A real TensorFlow 1 Estimator model of others, 2.6 MB from PyPI: guesslang's."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tf.session_in_process import InProcess
from workers.tf.library import SavedModelLoader

pytestmark = [pytest.mark.tensorflow, pytest.mark.models]

SOURCES = np.array(
    [
        b"import os\n\nprint(os.getcwd())\n",
        b"#include <stdio.h>\nint main(void) { return 0; }\n",
        b"",
        b"\xff\0x",
    ],
    object,
)


def test_its_signatures(load, guesslang):
    info = load(guesslang).info
    assert set(info.signatures) == {"classification", "predict", "serving_default"}
    assert not info.stateful


@pytest.mark.parametrize("signature", ["classification", "predict", "serving_default"])
def test_every_signature_answers_as_tensorflow_does(load, guesslang, in_process, signature):
    model = load(guesslang)
    offered = model.info.signatures[signature]
    (name,) = offered.inputs
    answer = model.run(signature, {name: SOURCES}, tuple(offered.outputs))
    expected = in_process(guesslang, signature, {name: SOURCES})
    assert answer.keys() == expected.keys()
    for output, value in answer.items():
        assert value.dtype == expected[output].dtype
        np.testing.assert_array_equal(value, expected[output])


def test_it_recognises_python_and_c(load, guesslang):
    python = Path(subprocess.__file__).read_bytes()[:20_000]
    answer = load(guesslang).run("predict", {"content": np.array([python, SOURCES[1]], object)}, ["classes"])
    assert answer["classes"].tolist() == [[b"py"], [b"c"]]


def test_a_session_runs_it_by_name(load, guesslang, in_process):
    definition = SavedModelLoader(str(guesslang)).get_meta_graph_def_from_tags(["serve"]).signature_def["predict"]
    fetches = {name: info.name for name, info in definition.outputs.items()}
    model = load(guesslang)
    pool = InProcess({"m": model}, lambda _: model)
    answer = pool.session("m").run(fetches, {definition.inputs["content"].name: SOURCES})
    assert pool.signatures == ["Session.run"], "it writes nothing, so any worker may run it"
    for name, value in in_process(guesslang, "predict", {"content": SOURCES}).items():
        assert answer[name].dtype == value.dtype
        np.testing.assert_array_equal(answer[name], value)

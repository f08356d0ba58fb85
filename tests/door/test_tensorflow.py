"""Doors with TensorFlow behind them, where stubs are not enough: TensorFlow Serving's APIs, and several tensors a job.

REST: what its documentation shows gives the same JSON. gRPC: as the stubs of `tensorflow-serving-api` speak it.
"""

import contextlib
import json
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from pool.door.protos import message
from pool.door.serving import example, joined
from pool.door.serving_grpc import LISTS, NUMBERS, TYPES, array_of, predicted
from pool.errors import InvalidInput
from pool.wire.tensors import DTYPES
from support.doors import RunningDoor, refused
from support.pools import RunningPool, pool_in

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensorflow_serving.apis import classification_pb2 as classification
    from tensorflow_serving.apis import get_model_metadata_pb2 as metadata
    from tensorflow_serving.apis import get_model_status_pb2 as status
    from tensorflow_serving.apis import inference_pb2, model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc
    from tensorflow_serving.apis import regression_pb2 as regression

    from tf.making import save_graph, v1
    from workers.tf.library import tf

pytestmark = [pytest.mark.door, pytest.mark.tensorflow]
Code = grpc.StatusCode
MOST = 1 << 20


def half_plus(folder: Path, plus: float) -> None:
    """As TensorFlow Serving's own: y = x / 2 + `plus`, of a number in a row or of the feature "x" of an example."""

    def build():
        a, b = (v1.get_variable(name, initializer=value) for name, value in (("a", 0.5), ("b", plus)))
        examples = v1.placeholder(tf.string, name="tf_example")
        parsed = tf.io.parse_example(tf.reshape(examples, [-1]), {"x": tf.io.FixedLenFeature([1], tf.float32)})
        x = tf.identity(parsed["x"], name="x")
        y = tf.add(a * x, b, name="y")
        return {
            "serving_default": ({"x": x}, {"y": y}),
            "regress_x_to_y": ({"inputs": examples}, {"outputs": y}),
            "classify_x_to_y": ({"inputs": examples}, {"scores": y}),
            "tensorflow/serving/regress": ({"inputs": examples}, {"outputs": y}),
        }

    save_graph(folder, build)


def native(folder: Path) -> None:
    module = tf.Module()
    examples = [tf.TensorSpec([None], tf.string, name="inputs")]
    rows = tf.TensorSpec([None, 3], tf.float32)

    def x(inputs):
        return tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([], tf.float32)})["x"]

    @tf.function(input_signature=examples)
    def classify(inputs):
        labels = tf.tile(tf.constant([["low", "high"]]), [tf.size(inputs), 1])
        return {"classes": labels, "scores": tf.stack([-x(inputs), x(inputs)], axis=1)}

    @tf.function(input_signature=examples)
    def regress(inputs):
        return {"outputs": x(inputs) / 2 + 2}

    @tf.function(input_signature=examples)
    def wide(inputs):
        return {"outputs": tf.stack([x(inputs), x(inputs)], axis=1), "scores": x(inputs)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def images(image_bytes):
        return {"same_bytes": tf.identity(image_bytes), "text": tf.strings.as_string(tf.strings.length(image_bytes))}

    @tf.function(input_signature=[rows, rows])
    def both(a, b):
        return {"total": a + b, "sum": tf.reduce_sum(a + b)}

    functions = classify, regress, wide, images, both
    module.functions = signatures = {each.python_function.__name__: each for each in functions}
    tf.saved_model.save(module, str(folder), signatures=signatures)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPool]:
    folder = tmp_path_factory.mktemp("models")
    half_plus(folder / "half_plus_two" / "00000123", 2.0)
    half_plus(folder / "saved_model_half_plus_three" / "00000123", 3.0)
    native(folder / "native")
    models = "".join(f'[[model]]\nname = "{each.name}"\npath = "{each}"\n' for each in folder.iterdir())
    two = f'path = "{folder}/half_plus_two"\n'
    models = models.replace(two, f'{two}versions = "all"\nlabels = {{ stable = 123 }}\n')
    with pool_in(tmp_path_factory.mktemp("pool"), '[pool]\ndevices = ["cpu"]\n' + models) as made:
        yield made


def curl(door: RunningDoor, path: str, *options: str) -> tuple[int, Any]:
    command = ["curl", "--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}", *options]
    done = subprocess.run([*command, f"http://{door.address}{path}"], capture_output=True, check=True, timeout=90)
    body, _, status = done.stdout.rpartition(b"\n")
    return int(status), json.loads(body)


def post(door: RunningDoor, path: str, body: Any, wanted: int = 200) -> Any:
    status, answer = curl(door, f"/v1/models/{path}", "-d", json.dumps(body))
    assert status == wanted, answer
    return answer


def test_what_the_documentation_shows(door):
    shown = json.loads("""{"model_version_status": [
        {"version": "123", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}]}""")
    three = "/v1/models/saved_model_half_plus_three"
    assert curl(door, three) == curl(door, f"{three}/versions/123") == (200, shown)
    numbers = ("-d", '{"instances": [1.0,2.0,5.0]}', "-X", "POST")
    assert curl(door, f"{three}:predict", *numbers) == (200, {"predictions": [3.5, 4.0, 5.5]})
    assert curl(door, "/v1/models/half_plus_two:predict", *numbers) == (200, {"predictions": [2.5, 3.0, 4.5]})
    status, answer = curl(door, "/v1/models/half:predict", *numbers)
    assert (status, list(answer)) == (404, ["error"])
    body = '{"signature_name": "tensorflow/serving/regress", "examples": [{"x": 1.0}, {"x": 2.0}]}'
    assert curl(door, f"{three}:regress", "-d", body, "-X", "POST") == (200, {"results": [3.5, 4.0]})


def test_each_method_of_half_plus_two(door):
    path = "half_plus_two/versions/123"
    assert post(door, f"{path}:predict", {"inputs": [3.0, 4.0]}) == {"outputs": [3.5, 4.0]}
    assert post(door, f"{path}:predict", {"instances": [[1111111.0]]}) == {"predictions": [[555557.5]]}
    body = {"signature_name": "classify_x_to_y", "examples": [{"x": 20.0}, {"x": [10.0]}]}
    assert post(door, f"{path}:classify", body) == {"results": [[["", 12.0]], [["", 7.0]]]}
    body = {"signature_name": "regress_x_to_y", "context": {"x": 80.0}, "examples": [{}, {"x": 2.0}]}
    assert post(door, f"{path}:regress", body) == {"results": [42.0, 3.0]}
    assert "is not for classify" in post(door, f"{path}:classify", body, 400)["error"]
    body = {"signature_name": "regress_x_to_y", "examples": [{"x": 80}]}
    assert "Data types don't match" in post(door, "half_plus_two:regress", body, 500)["error"]


def test_signatures_of_tensorflow_2(door):
    body = {"signature_name": "classify", "examples": [{"x": 0.25}, {"x": 2.0}]}
    results = [[["low", -0.25], ["high", 0.25]], [["low", -2.0], ["high", 2.0]]]
    assert post(door, "native:classify", body) == {"results": results}
    body["signature_name"] = "wide"
    assert "must be float32 [2]" in post(door, "native:regress", body, 400)["error"]
    assert "[2, k]" in post(door, "native:classify", body, 400)["error"]
    body = {"signature_name": "images", "instances": [{"b64": "/9j/"}, {"b64": "aGVsbG8="}]}
    rows = [{"same_bytes": {"b64": "/9j/"}, "text": "3"}, {"same_bytes": {"b64": "aGVsbG8="}, "text": "5"}]
    assert post(door, "native:predict", body) == {"predictions": rows}
    assert "there are several signatures" in post(door, "native:predict", {"instances": [1]}, 400)["error"]


def test_several_inputs_and_outputs(door):
    first, second = {"a": [1, 2, 3], "b": [1.0, 0.5, 0.25]}, {"a": [0, 0, 1], "b": [1, 1, 1]}
    body = {"signature_name": "both", "inputs": {name: [first[name], second[name]] for name in first}}
    outputs = {"total": [[2.0, 2.5, 3.25], [1.0, 1.0, 2.0]], "sum": 11.75}
    assert post(door, "native:predict", body) == {"outputs": outputs}
    body = {"signature_name": "both", "instances": [first, second]}
    assert "give 'inputs' in place" in post(door, "native:predict", body, 400)["error"], "one output is a scalar"
    for wrong in ({"instances": [1]}, {"inputs": [1]}, {"instances": [{"a": [1, 2, 3]}]}):
        assert "input" in post(door, "native:predict", {"signature_name": "both", **wrong}, 400)["error"]


def test_several_inputs_and_outputs_in_the_open_inference_protocol_each_in_its_own_way(door):
    def tensor(name, *rows, binary_data=True):
        made = triton.InferInput(name, [len(rows), 3], "FP32")
        return made.set_data_from_numpy(np.float32(rows), binary_data=binary_data)

    b, a = tensor("b", [1.0, 0.5, 0.25], [1, 1, 1]), tensor("a", [1, 2, 3], [0, 0, 1], binary_data=False)
    with contextlib.closing(triton.InferenceServerClient(door.address)) as client:
        for inputs in ([b, a], [a, b], [b, tensor("a", [1, 2, 3], [0, 0, 1])]):
            for names in (("sum", "total"), ("total", "sum")):
                outputs = [triton.InferRequestedOutput(name, name == names[0]) for name in names]
                result = client.infer("native", inputs, outputs=outputs, parameters={"signature": "both"})
                assert result.as_numpy("total").tolist() == [[2.0, 2.5, 3.25], [1.0, 1.0, 2.0]]
                assert result.as_numpy("sum").item() == 11.75
        images = triton.InferInput("image_bytes", [2], "BYTES").set_data_from_numpy(np.array([b"\xff", b"ab"], object))
        result = client.infer("native", [images], parameters={"signature": "images"})
        assert [result.as_numpy(name).tolist() for name in ("text", "same_bytes")] == [[b"1", b"2"], [b"\xff", b"ab"]]
        with pytest.raises(InferenceServerException, match=r"\[400\].*several signatures"):
            client.infer("native", [a, b])


def parsed(serialized):
    features = tf.train.Example.FromString(serialized).features.feature
    return {name: [*getattr(each, each.WhichOneof("kind")).value] for name, each in features.items()}


def test_examples_are_what_tensorflow_reads():
    features = {"a": 1.5, "b": [1, True, -1, 300, (1 << 63) - 1], "é": ["x", {"b64": "/w=="}], "f": [-0.0]}
    wanted = {"a": [1.5], "b": [1, 1, -1, 300, (1 << 63) - 1], "é": [b"x", b"\xff"], "f": [-0.0]}
    assert parsed(example(features)) == wanted
    assert tf.train.Example.FromString(example({"none": []})).features.feature["none"].WhichOneof("kind") is None
    assert parsed(example({"a": 1}) + example({"a": 2, "b": "x" * 300})) == {"a": [2], "b": [b"x" * 300]}


def test_what_is_no_example_says_why():
    values = [None, {"b": 1}, [[1]], [1, 1.0], [1, "x"], {"b64": "?"}, 1 << 63, 1e39, "\ud800"]
    for features in (1, [{"a": 1}], {"\ud800": 1}, *({"a": value} for value in values)):
        with pytest.raises(InvalidInput):
            example(features)


# --- gRPC -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def half(request, **spec):
    return request(model_spec={"name": "half_plus_two", **spec})


def predict(x, **spec):
    made = half(predict_pb2.PredictRequest, **spec)
    made.inputs["x"].CopyFrom(tf.make_tensor_proto(x))
    return made


def test_predict(stub):
    answer = stub.Predict(predict([[1.0], [2.0], [5.0]]), 60)
    assert [*answer.outputs["y"].float_val] == [2.5, 3.0, 4.5], "many read the list, as the documentation does"
    assert (answer.model_spec.version.value, answer.model_spec.signature_name) == (123, "serving_default")
    for choice in ({"version_label": "stable"}, {"version": {"value": 123}}):
        request = predict([[1.0]], **choice)
        request.output_filter.append("y")
        assert {name: [*each.float_val] for name, each in stub.Predict(request).outputs.items()} == {"y": [2.5]}
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones((900_000, 1), np.float32)))
    assert (tf.make_ndarray(stub.Predict(request).outputs["y"]) == 2.5).all()
    request.output_filter[0] = "z"
    refused(Code.INVALID_ARGUMENT, "no output 'z'", stub.Predict, request)
    refused(Code.NOT_FOUND, "did you mean 'half_plus_two'?", stub.Predict, predict([[1.0]], name="half_plus_tow"))
    request = half(predict_pb2.PredictRequest, name="native", signature_name="images")
    request.inputs["image_bytes"].CopyFrom(tf.make_tensor_proto([b"\xff", b"ab"]))
    assert tf.make_ndarray(stub.Predict(request).outputs["text"]).tolist() == [b"1", b"2"]


def test_classify_regress_and_both(stub):
    request = half(regression.RegressionRequest, name="native", signature_name="regress")
    for value in (1, 3):
        request.input.example_list.examples.add().features.feature["x"].float_list.value.append(value)
    assert [each.value for each in stub.Regress(request).result.regressions] == [2.5, 3.5]
    given = half(classification.ClassificationRequest, name="native", signature_name="classify")
    shared = given.input.example_list_with_context
    shared.examples.add().features.feature["x"].float_list.value.append(2)
    shared.examples.add()
    shared.context.features.feature["x"].float_list.value.append(7)
    found = stub.Classify(given).result.classifications
    pairs = [[(each.label, each.score) for each in row.classes] for row in found]
    assert pairs == [[("low", -2), ("high", 2)], [("low", -7), ("high", 7)]], "an example's own feature counts more"
    both = inference_pb2.MultiInferenceRequest(input=request.input)
    for name in ("regress", "classify"):
        both.tasks.append(half(inference_pb2.InferenceTask, name="native", signature_name=name))
        both.tasks[-1].method_name = f"tensorflow/serving/{name}"
    first, second = stub.MultiInference(both).results
    assert [each.value for each in first.regression_result.regressions] == [2.5, 3.5]
    assert second.classification_result.classifications[1].classes[1].score == 3
    both.tasks[0].method_name = "tensorflow/serving/predict"
    refused(Code.INVALID_ARGUMENT, "give tensorflow/serving/classify", stub.MultiInference, both)
    both.tasks[0].method_name = "tensorflow/serving/classify"
    refused(Code.INVALID_ARGUMENT, "not for classify", stub.MultiInference, both)


def test_metadata_and_status(channel, stub):
    request = half(metadata.GetModelMetadataRequest)
    refused(Code.INVALID_ARGUMENT, "give 'signature_def' alone", stub.GetModelMetadata, request)
    request.metadata_field.append("signature_def")
    signatures = metadata.SignatureDefMap()
    assert stub.GetModelMetadata(request).metadata["signature_def"].Unpack(signatures)
    x = signatures.signature_def["serving_default"].inputs["x"]
    assert (x.dtype, [axis.size for axis in x.tensor_shape.dim]) == (tf.float32.as_datatype_enum, [-1, 1])
    get = model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus
    for choice in ({}, {"version_label": "stable"}, {"version": {"value": 123}}):
        [told] = get(half(status.GetModelStatusRequest, **choice)).model_version_status
        assert (told.version, told.state, told.status.error_code) == (123, told.AVAILABLE, 0)
    refused(Code.NOT_FOUND, "Could not find", get, half(status.GetModelStatusRequest, version={"value": 7}))


@pytest.mark.parametrize("dtype", [name for name in DTYPES if TYPES[name] in NUMBERS and not name.endswith("fnuz")])
def test_tensors_of_every_dtype_are_what_tensorflow_makes_and_reads(dtype):
    extremes = {"bool": [True, False], "string": [b"", b"\xff"], "uint64": [0, (1 << 64) - 1]}
    numbers = [ml_dtypes.iinfo(dtype).min, 1] if "int" in dtype else [-1.5, 0.25]
    array = np.array(extremes.get(dtype, numbers), DTYPES[dtype])
    theirs = tf.make_tensor_proto(array, dtype)
    ours = type(theirs).FromString(predicted({}, {"y": array}).outputs["y"].SerializeToString())
    assert ours.dtype == theirs.dtype

    def read(proto):
        return array_of("x", message("tensorflow.TensorProto").FromString(proto.SerializeToString()), MOST)

    for found in (tf.make_ndarray(ours), read(ours), read(theirs)):
        np.testing.assert_array_equal(found, array)
    ours.tensor_shape.dim[0].size = 3
    np.testing.assert_array_equal(read(ours), tf.make_ndarray(ours), "the last one is repeated")
    ours.ClearField(LISTS[dtype])
    assert not read(ours).astype(bool).any(), "TensorFlow's kernels see zeros"


WRONG = [
    ({"tensor_shape": {"dim": [{"size": -1}]}}, "no tensor"),
    ({"tensor_shape": {"dim": [{"size": 1 << 40}]}, "float_val": [1]}, "more than"),
    ({"tensor_shape": {"dim": [{"size": 0}, {"size": 1 << 62}, {"size": 1 << 62}]}}, "float32"),
    ({"float_val": [1, 2]}, "size 2"),
    ({"dtype": "DT_BOOL", "tensor_content": b"\2"}, "0 or 1"),
    ({"dtype": "DT_COMPLEX64", "scomplex_val": [1, 2, 3]}, "complex64"),
    ({"dtype": "DT_HALF", "half_val": [-1]}, "uint16"),
]


@pytest.mark.parametrize(("fields", "text"), WRONG)
def test_tensors_that_are_none(fields, text):
    with pytest.raises(InvalidInput, match=text):
        array_of("x", message("tensorflow.TensorProto")(**{"dtype": "DT_FLOAT", **fields}), MOST)


def test_a_small_message_makes_no_large_tensors(stub):
    request = predict([[1.0]])
    for name, text in zip("abc", ("no input", "no input", "more than"), strict=True):
        half_of_most = {"dim": [{"size": 1 << 17}]}
        request.inputs[name].MergeFrom(type(request.inputs[name])(dtype=1, tensor_shape=half_of_most, float_val=[1]))
        refused(Code.INVALID_ARGUMENT, text, stub.Predict, request)
    assert len(joined(bytes(MOST), [b"x"] * 16)) == 16
    with pytest.raises(InvalidInput, match="17 examples are too many"):
        joined(bytes(MOST), [b"x"] * 17)

"""TensorFlow Serving's services as the stubs of `tensorflow-serving-api` speak them, with TensorFlow behind them."""

import warnings

import grpc
import ml_dtypes
import numpy as np
import pytest

from pool.door.protos import message
from pool.door.serving import joined
from pool.door.serving_grpc import LISTS, NUMBERS, TYPES, array_of, predicted
from pool.errors import InvalidInput
from pool.wire.tensors import DTYPES
from support.doors import start_door
from support.pools import WAIT_S, pool_in

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensorflow_serving.apis import classification_pb2 as classification
    from tensorflow_serving.apis import get_model_metadata_pb2 as metadata
    from tensorflow_serving.apis import get_model_status_pb2 as status
    from tensorflow_serving.apis import inference_pb2, model_service_pb2_grpc, predict_pb2, prediction_service_pb2_grpc
    from tensorflow_serving.apis import regression_pb2 as regression

    from workers.tf.library import tf

pytestmark = [pytest.mark.door, pytest.mark.tensorflow]
Code = grpc.StatusCode
MOST = 1 << 20


def half_plus_two(folder):
    """Of TensorFlow Serving's documentation: y = x / 2 + 2, of numbers or of the feature "x" of examples."""
    numbers, texts = tf.TensorSpec([None, 1], tf.float32, name="x"), tf.TensorSpec([None], tf.string, name="inputs")

    def parsed(inputs):
        return tf.io.parse_example(inputs, {"x": tf.io.FixedLenFeature([1], tf.float32)})["x"]

    def classify(inputs):
        labels = tf.tile(tf.constant([["low", "high"]]), [tf.size(inputs), 1])
        return {"classes": labels, "scores": tf.concat([-parsed(inputs), parsed(inputs)], axis=1)}

    module = tf.Module()
    module.made = made = {
        "serving_default": tf.function(lambda x: {"y": x / 2 + 2, "text": tf.strings.as_string(x)}, [numbers]),
        "regress": tf.function(lambda inputs: {"outputs": parsed(inputs) / 2 + 2}, [texts]),
        "classify": tf.function(classify, [texts]),
    }
    tf.saved_model.save(module, str(folder), signatures=made)


@pytest.fixture(scope="module")
def channel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    half_plus_two(folder / "half" / "123")
    model = f'[[model]]\nname = "half"\npath = "{folder}/half"\nversions = "all"\nlabels = {{ stable = 123 }}\n'
    with (
        pool_in(folder, f'[pool]\ndevices = ["cpu"]\n{model}') as pool,
        start_door(pool) as door,
        grpc.insecure_channel(door.grpc) as made,
    ):
        grpc.channel_ready_future(made).result(WAIT_S)
        yield made


@pytest.fixture
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def half(request, **spec):
    return request(model_spec={"name": "half", **spec})


def predict(x, **spec):
    made = half(predict_pb2.PredictRequest, **spec)
    made.inputs["x"].CopyFrom(tf.make_tensor_proto(x))
    return made


def refused(code, text, call, request):
    with pytest.raises(grpc.RpcError) as error:
        call(request)
    assert error.value.code() is code, error.value.details()
    assert text in error.value.details()


def test_predict(stub):
    answer = stub.Predict(predict([[1.0], [2.0], [5.0]]), 60)
    assert [*answer.outputs["y"].float_val] == [2.5, 3.0, 4.5], "many read the list, as the documentation does"
    assert tf.make_ndarray(answer.outputs["text"]).tolist() == [[b"1.000000"], [b"2.000000"], [b"5.000000"]]
    assert (answer.model_spec.version.value, answer.model_spec.signature_name) == (123, "serving_default")
    for choice in ({"version_label": "stable"}, {"version": {"value": 123}}):
        request = predict([[1.0]], **choice)
        request.output_filter.append("y")
        assert {name: [*each.float_val] for name, each in stub.Predict(request).outputs.items()} == {"y": [2.5]}
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.ones((900_000, 1), np.float32)))
    assert (tf.make_ndarray(stub.Predict(request).outputs["y"]) == 2.5).all()
    request.output_filter[0] = "z"
    refused(Code.INVALID_ARGUMENT, "no output 'z'", stub.Predict, request)
    refused(Code.NOT_FOUND, "did you mean 'half'?", stub.Predict, predict([[1.0]], name="haf"))


def test_classify_regress_and_both(stub):
    request = half(regression.RegressionRequest, signature_name="regress")
    for value in (1, 3):
        request.input.example_list.examples.add().features.feature["x"].float_list.value.append(value)
    assert [each.value for each in stub.Regress(request).result.regressions] == [2.5, 3.5]
    given = half(classification.ClassificationRequest, signature_name="classify")
    shared = given.input.example_list_with_context
    shared.examples.add().features.feature["x"].float_list.value.append(2)
    shared.examples.add()
    shared.context.features.feature["x"].float_list.value.append(7)
    found = stub.Classify(given).result.classifications
    pairs = [[(each.label, each.score) for each in row.classes] for row in found]
    assert pairs == [[("low", -2), ("high", 2)], [("low", -7), ("high", 7)]], "an example's own feature counts more"
    both = inference_pb2.MultiInferenceRequest(input=request.input)
    for name in ("regress", "classify"):
        both.tasks.append(half(inference_pb2.InferenceTask, signature_name=name))
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

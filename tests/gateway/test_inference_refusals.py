"""What is wrong in an infer request is said with its 4xx: no job is run, nothing is kept, the next one is served."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from gateway.fakes import Echo, asked, infer
from pool.errors import DeadlineExceeded, InvalidInput, ModelNotFound, Overloaded, PoolError
from pool.gateway.http import Refused, Request
from pool.gateway.inference import Inference
from pool.gateway.inference.plan import prepared

SIZE = "binary_data_size"
X = {"name": "x", "datatype": "FP32", "shape": [2]}
FOUR = b"\0\0\x80?" * 2


def binary(size_bytes: Any = 8, **changed: Any) -> dict[str, Any]:
    return {**X, "parameters": {SIZE: size_bytes}, **changed}


def data(data: Any, **changed: Any) -> dict[str, Any]:
    return {**X, "data": data, **changed}


def strings(*lengths: int, shape: tuple[int, ...] = (2,), behind: bytes = b"") -> tuple[dict[str, Any], bytes]:
    """Elements that say they have these lengths, of three bytes each."""
    body = b"".join(length.to_bytes(4, "little") + b"abc" for length in lengths) + behind
    return binary(len(body), datatype="BYTES", shape=list(shape)), body


def header(*inputs: Any, **more: Any) -> dict[str, Any]:
    return {"inputs": [*inputs], **more}


def out(**parameters: Any) -> dict[str, Any]:
    return {"outputs": [{"name": "x", "parameters": parameters}]}


def param(**parameters: Any) -> dict[str, Any]:
    return header(binary(), parameters=parameters)


TOO_MANY = 1 << 40

# What is asked, what follows the header, and what the refusal says.
BAD: dict[str, tuple[Any, bytes, int, str]] = {
    "no object": ([], b"", 400, "a JSON object with `inputs`"),
    "no inputs": ({}, b"", 400, "no list of `inputs`"),
    "inputs that are none": ({"inputs": {}}, b"", 400, "no list of `inputs`"),
    "an input that is none": (header(3), b"", 400, "inputs[0] is 3; give a JSON object"),
    "no name": (header({"datatype": "FP32"}), b"", 400, "its name is None"),
    "a name that is none": (header(binary(name=3)), FOUR, 400, "its name is 3"),
    "twice": (header(binary(), binary()), 2 * FOUR, 400, "input 'x' is there twice"),
    "no datatype": (header({"name": "x", "shape": [1]}), b"", 400, "its datatype is None"),
    "an unknown datatype": (header(binary(datatype="FP8")), FOUR, 400, "there is no datatype 'FP8'; there are BOOL"),
    "a datatype in small letters": (header(binary(datatype="fp32")), FOUR, 400, "there is no datatype"),
    "no shape": (header({"name": "x", "datatype": "FP32", "data": []}), b"", 400, "its shape is None"),
    "a negative axis": (header(binary(shape=[-1, 2])), FOUR, 400, "give a list of lengths"),
    "an axis that is a float": (header(binary(shape=[2.0])), FOUR, 400, "give a list of lengths"),
    "an axis that is true": (header(binary(shape=[True, 2])), FOUR, 400, "give a list of lengths"),
    "an axis past 64 bits": (header(binary(shape=[1 << 63])), FOUR, 400, "give a list of lengths"),
    "a product that overflows": (header(binary(shape=[1 << 33, 1 << 31])), FOUR, 400, "no tensor has the shape"),
    "a product that wraps to 2": (header(binary(shape=[(1 << 62) + 1, 4])), FOUR, 400, "no tensor has the shape"),
    "bytes that wrap to 8": (header(binary(shape=[(1 << 62) + 2])), FOUR, 400, "takes 18446744073709551624 bytes"),
    "an empty one that is huge": (header(binary(0, shape=[0, 1 << 62])), b"", 400, "no tensor has the shape"),
    "an empty one of data": (header(data([], shape=[0, 1 << 62])), b"", 400, "no tensor has the shape"),
    "65 axes": (header(binary(shape=[1] * 64 + [2])), FOUR, 400, "no tensor has the shape"),
    "too small for its shape": (header(binary(shape=[3])), FOUR, 400, "takes 12 bytes, binary_data_size is 8"),
    "too large for its shape": (header(binary(shape=[1])), FOUR, 400, "takes 4 bytes, binary_data_size is 8"),
    "bytes of an empty one": (header(binary(shape=[0])), FOUR, 400, "takes 0 bytes, binary_data_size is 8"),
    "more behind than said": (header(binary()), FOUR + b"\0", 400, "9 bytes follow the header"),
    "less behind than said": (header(binary()), FOUR[:-1], 400, "7 bytes follow the header"),
    "nothing behind": (header(binary()), b"", 400, "0 bytes follow the header"),
    "sizes that do not add up": (header(binary(), binary(name="y")), FOUR, 400, "are 16 together"),
    "a huge size": (header(binary(TOO_MANY, shape=[TOO_MANY // 4])), FOUR, 400, "8 bytes follow the header"),
    "a negative size": (header(binary(-8)), FOUR, 400, "binary_data_size is -8"),
    "a size that is a text": (header(binary("8")), FOUR, 400, "binary_data_size is '8'"),
    "a size that is true": (header(binary(True)), FOUR, 400, "binary_data_size is True"),
    "neither data nor size": (header(X), b"", 400, "give either `data` or the parameter"),
    "data and size": (header(binary(data=[1, 2])), FOUR, 400, "give either `data` or the parameter"),
    "parameters of an input": (header(binary(parameters=[])), FOUR, 400, "parameters is []; give a JSON object"),
    "a bool of 2": (header(binary(2, datatype="BOOL")), b"\1\2", 400, "a byte 0 or 1"),
    "a string past the end": (header(strings(3, 4)[0]), strings(3, 4)[1], 400, "element 1 of 2 ends past its 14 bytes"),
    "a string of 4 GB": (header(strings(3, 0xFFFFFFFF)[0]), strings(3, 0xFFFFFFFF)[1], 400, "element 1 of 2 ends"),
    "strings that leave bytes": (header(strings(3, 2)[0]), strings(3, 2)[1], 400, "1 bytes follow its 2 elements"),
    "too few strings": (header(strings(3, 3, shape=(3,))[0]), strings(3, 3)[1], 400, "element 2 of 3 ends past"),
    "more strings than bytes": (header(strings(3, shape=(TOO_MANY,))[0]), strings(3)[1], 400, "takes at least"),
    "strings of an empty one": (header(strings(3, shape=(0,))[0]), strings(3)[1], 400, "takes at least 0 bytes"),
    "data that is no list": (header(data(1)), b"", 400, "its data is a list"),
    "too little data": (header(data([1.0])), b"", 400, "shape [2] has 2 elements, its data has 1"),
    "too much data": (header(data([1, 2, 3])), b"", 400, "its data has 3"),
    "data of another shape": (header(data([[1, 2], [3, 4], [5, 6]], shape=[2, 3])), b"", 400, "have the shape [3, 2]"),
    "ragged data": (header(data([[1, 2], [3]], shape=[3])), b"", 400, "do not have one shape"),
    "data of two depths": (header(data([1, [2]])), b"", 400, "do not have one shape"),
    "lists beside a text": (header(data([[1], "a"])), b"", 400, "do not have one shape"),
    "texts for numbers": (header(data(["1", "2"])), b"", 400, "FP32 data are numbers"),
    "null for a number": (header(data([None, 1])), b"", 400, "FP32 data are numbers"),
    "objects for numbers": (header(data([{}, {}])), b"", 400, "FP32 data are numbers"),
    "true for a number": (header(data([True, 1])), b"", 400, "FP32 data are numbers"),
    "a fraction for an integer": (header(data([1.5, 2], datatype="INT32")), b"", 400, "INT32 data are integers"),
    "NaN for an integer": (header(data([float("nan"), 2], datatype="INT32")), b"", 400, "INT32 data are integers"),
    "1 for true": (header(data([1, 0], datatype="BOOL")), b"", 400, "BOOL data are true or false"),
    "a number for a text": (header(data(["a", 1], datatype="BYTES")), b"", 400, "BYTES data are texts"),
    "an integer too large": (header(data([256, 0], datatype="UINT8")), b"", 400, "beyond what UINT8 holds"),
    "a negative unsigned one": (header(data([-1, 0], datatype="UINT64")), b"", 400, "beyond what UINT64 holds"),
    "a float too large": (header(data([1e39, 0])), b"", 400, "beyond what FP32 holds"),
    "an integer of 500 digits": (header(data([10**500, 0])), b"", 400, "the body is not JSON"),
    "such a one beside NaN": (header(data([10**500, float("nan")])), b"", 400, "beyond what FP32 holds"),
    "FP16 in JSON": (header(data([1, 2], datatype="FP16")), b"", 400, "receiving FP16 data via JSON is not supported"),
    "BF16 in JSON": (header(data([1, 2], datatype="BF16")), b"", 400, "receiving BF16 data via JSON is not supported"),
    "half a character": (header(data(["\ud800", ""], datatype="BYTES")), b"", 400, "the body is not JSON"),
    "such a one beside NaN's name": (header(data(["\ud800", "NaN"], datatype="BYTES")), b"", 400, "not valid unicode"),
    "a name of such": (header(binary(name="\ud800"), data([], name="NaN", shape=[0])), FOUR, 400, ""),
    "an id that is none": (header(binary(), id=7), FOUR, 400, "its id is 7"),
    "parameters that are none": (header(binary(), parameters=3), FOUR, 400, "parameters is 3"),
    "binary_data_output": (param(binary_data_output=1), FOUR, 400, "binary_data_output is 1; give true or false"),
    "a timeout of text": (param(timeout="1"), FOUR, 400, "parameter timeout is '1'"),
    "a negative timeout": (param(timeout=-1), FOUR, 400, "parameter timeout is -1"),
    "a priority of half": (param(priority=0.5), FOUR, 400, "parameter priority is 0.5"),
    "a signature of none": (param(signature=None), FOUR, 400, "parameter signature is None"),
    "a sequence": (param(sequence_id=5), FOUR, 400, "sequence_id is 5, but there are no sequences here"),
    "a sequence of text": (param(sequence_id="a"), FOUR, 400, "there are no sequences here"),
    "a reserved name": (param(triton_x=1), FOUR, 400, "names that begin with triton_ are reserved"),
    "outputs that are none": (header(binary(), outputs=3), FOUR, 400, "`outputs` is a list"),
    "an output without a name": (header(binary(), outputs=[{}]), FOUR, 400, "outputs[0]: its name is None"),
    "an output twice": (header(binary(), outputs=[{"name": "x"}] * 2), FOUR, 400, "output 'x' is asked for twice"),
    "binary_data of text": (header(binary(), **out(binary_data="yes")), FOUR, 400, "binary_data is 'yes'"),
    "classification": (header(binary(), **out(classification=3)), FOUR, 501, "classification extension is not served"),
    "an output's region": (header(binary(), **out(shared_memory_region="r")), FOUR, 501, "regions are not served"),
    "an input's region": (header({**X, "parameters": {"shared_memory_region": "r"}}), b"", 501, "regions are not"),
}


def request(told: Any, behind: bytes, **changed: Any) -> Request:
    """`told`: what JSON can say, or bytes."""
    head = told if isinstance(told, bytes) else json.dumps(told).encode()
    return infer(head + behind, len(head), **changed)


GOOD = param(binary_data_output=True)


def assert_refused(bad: Request, status: int, text: str) -> None:
    client, inference = Echo(), Inference()
    assert asked(inference, client, request(GOOD, FOUR))[0].status == 200, "its premise"
    response, body = asked(inference, client, bad)
    assert response.status == status, body
    error = json.loads(body)
    assert error.keys() == {"error"}
    assert text in error["error"]
    assert len(client.jobs) == 1, "no job was run of it"
    response, body = asked(inference, client, request(GOOD, FOUR))
    assert response.status == 200
    assert body.endswith(FOUR)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_request_is_refused_with_the_reason(what: str) -> None:
    told, behind, status, text = BAD[what]
    assert_refused(request(told, behind), status, text)


@pytest.mark.parametrize("what", BAD)
def test_what_is_wrong_in_a_header_leaves_no_plan(what: str) -> None:
    told, behind, _, _ = BAD[what]
    inference = Inference()
    response, _ = asked(inference, Echo(), request(told, behind))
    kept = inference._infer._plans
    head = json.dumps(told).encode()
    if len(kept):  # then nothing is wrong in the header itself
        prepared("m", None, head, has_binary=True)
    else:
        with pytest.raises(Refused) as caught:
            prepared("m", None, head, has_binary=True)
        assert caught.value.status == response.status


TEXTS = {
    "not JSON": (b"{", "the body is not JSON"),
    "nothing": (b"", "the body is not JSON"),
    "not UTF-8": (b'{"inputs": "\xff"}', "the body is not JSON"),
    "too deep": (b'{"inputs":' + b"[" * 100_000, "the body is not JSON"),
    "an id that is not UTF-8": (b'{"id":"\xff","inputs":[]}', "the body is not JSON"),
    "an id with a line break": (b'{"id":"a\nb","inputs":[]}', "the body is not JSON"),
    "a comma behind the id": (b'{"id":"a",}', "the body is not JSON"),
    "two objects": (b"{}{}", "the body is not JSON"),
}


@pytest.mark.parametrize("what", TEXTS)
def test_what_is_no_json_is_refused(what: str) -> None:
    text, said = TEXTS[what]
    assert_refused(infer(text, None), 400, said)
    if text:  # a body without any header is another matter
        assert_refused(request(text, b""), 400, said)


@pytest.mark.parametrize("length", ["", "-1", "+5", "1.0", "0x10", "1_0", "ten", "9" * 30, "\u00b2", "100000"])
def test_a_header_length_that_is_none_is_refused(length: str) -> None:
    head = json.dumps(GOOD).encode()
    assert_refused(infer(head + FOUR, length), 400, "Inference-Header-Content-Length is")


def test_a_header_length_that_lies_is_refused() -> None:
    head = json.dumps(GOOD).encode()
    assert_refused(infer(head + FOUR, len(head) - 1), 400, "the body is not JSON")
    assert_refused(infer(head + FOUR, len(head) + 1), 400, "the body is not JSON")
    assert_refused(infer(head + FOUR, len(head + FOUR)), 400, "the body is not JSON")


def test_binary_data_without_a_header_length_is_refused() -> None:
    assert_refused(infer(json.dumps(GOOD).encode(), None), 400, "needs the header Inference-Header-Content-Length")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/m/infer", 405),
        ("PUT", "/v2/models/m/infer", 405),
        ("POST", "/v2/infer", 404),
        ("POST", "/v2/models/infer", 404),
        ("POST", "/v2/models//infer", 404),
        ("POST", "/v2/models/m/versions//infer", 404),
        ("POST", "/v2/models/m/versions/infer", 404),
        ("POST", "/v2/models/m/n/infer", 404),
        ("POST", "/v2/models/m/versions/1/2/infer", 404),
        ("POST", "/v2/other/m/infer", 404),
        ("POST", "/v2/models/%ff/infer", 400),
    ],
)
def test_a_path_that_names_no_model_is_refused(method: str, path: str, status: int) -> None:
    bad = request(GOOD, FOUR, path=path)
    bad.method = method
    assert_refused(bad, status, "")


@pytest.mark.parametrize("name", ["a b", "a/b", "é", "\U0001f600", "..", "?", "%2e", "infer", "x" * 900, "\x01"])
def test_a_name_may_be_anything_that_a_path_can_say(name: str) -> None:
    client = Echo()
    path = f"/v2/models/{quote(name, safe='')}/versions/{quote(name, safe='')}/infer"
    response, body = asked(Inference(), client, request(GOOD, FOUR, path=path))
    assert response.status == 200, body
    [(model, _, options)] = client.jobs
    assert (model, options["version"]) == (name, name)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidInput("model m, input x: expects float32"), 400),
        (ModelNotFound("no model 'm'"), 404),
        (DeadlineExceeded("1 s is over"), 504),
        (Overloaded("the queue is full", 3.2), 503),
        (InvalidInput("a name of \udcff"), 400),
    ],
)
def test_an_error_of_the_pool_is_said_in_its_words(error: PoolError, status: int) -> None:
    response, body = asked(Inference(), Echo(error=error), request(GOOD, FOUR))
    assert response.status == status
    assert json.loads(body)["error"] == str(error).replace("\udcff", "\\udcff")
    assert dict(response.headers).get("Retry-After") == ("4" if status == 503 else None)


def test_a_bug_is_told_as_one_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    response, body = asked(Inference(), Echo(error=KeyError("gone")), request(GOOD, FOUR))
    assert (response.status, json.loads(body)) == (500, {"error": "the gateway failed at this request"})
    assert "KeyError" in caplog.text


def test_a_body_is_never_more_memory_than_it_came_with() -> None:
    """numpy would make each element as long as the longest text: 40 GB."""
    inputs = header(data(["a" * 200_000, *[1.0] * 50_000], shape=[50_001]))
    assert_refused(infer(json.dumps(inputs).encode(), None), 400, "FP32 data are numbers")

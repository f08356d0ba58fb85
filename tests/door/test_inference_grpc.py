"""The Open Inference Protocol over gRPC as `tritonclient` speaks it, which is not changed for it."""

import asyncio
import itertools
import queue
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from pool.door import rpc
from pool.door.tokens import new
from pool.errors import InvalidInput
from pool.wire.datatypes import DATATYPES
from support.doors import VALUES, certificate, connected, free_address, refused, start_door
from support.pools import WAIT_S, until

pytestmark = pytest.mark.door

Code = grpc.StatusCode
LISTS = {"BOOL": "bool", "INT64": "int64", "UINT64": "uint64", "FP32": "fp32", "FP64": "fp64", "BYTES": "bytes"}
LISTS |= {f"{sign}INT{bits}": f"{sign.lower()}int" for sign in ("", "U") for bits in (8, 16, 32)}


@pytest.fixture
def stub(channel):
    return service_pb2_grpc.GRPCInferenceServiceStub(channel)


@pytest.fixture
def client(door):
    with triton.InferenceServerClient(door.grpc) as made:
        yield made


def given(array, datatype="FP32"):
    made = triton.InferInput("x", array.shape, datatype)
    made.set_data_from_numpy(array)
    return [made]


def rows(*values):
    return given(np.array(values, np.float32)[:, None])


def silent(channel, method, *messages, **metadata):
    """A call whose head is sent, and these messages, and then nothing."""
    unending = itertools.chain(messages, iter(queue.Queue().get, None))
    return channel.stream_stream(f"/inference.GRPCInferenceService/{method}")(unending, metadata=[*metadata.items()])


def test_what_is_said_of_the_server_and_its_models(client):
    assert [client.is_server_live(), client.is_server_ready()] == [True, True]
    places = ("double", ""), ("numbered", "3"), ("numbered", "4"), ("x", "")
    assert [client.is_model_ready(*place) for place in places] == [True, True, False, False]
    told = client.get_model_metadata("numbered", "3", as_json=True)
    assert told["versions"] == ["3", "12"]
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1", "1"]}]
    assert [*client.get_model_config("double").config.input[0].dims] == [1]
    ready = {(each.name, each.version) for each in client.get_model_repository_index().models if each.state == "READY"}
    assert {("double", "1"), ("numbered", "3"), ("numbered", "12")} < ready
    client.infer("double", rows(1))
    assert client.get_inference_statistics("double").model_stats[0].inference_stats.success.count > 0
    with pytest.raises(InferenceServerException, match=r"NOT_FOUND.* did you mean 'double'\?"):
        client.get_model_metadata("doubles")


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_comes_back_as_it_went(datatype, client, stub):
    model = DATATYPES[datatype]
    dtype = {"BF16": np.float32, "BYTES": object}.get(datatype) or np.dtype(model)
    for array in (np.array(VALUES[datatype], dtype), np.empty((0, 2), dtype), np.array(VALUES[datatype][2], dtype)):
        result = client.infer(model, given(array, datatype), request_id="7")
        assert (result.get_response().id, result.get_response().outputs[0].datatype) == ("7", datatype)
        np.testing.assert_array_equal(result.as_numpy("y"), array)
    tensor = {"name": "x", "datatype": datatype, "shape": [3]}
    if datatype in LISTS:
        listed = {**tensor, "contents": {f"{LISTS[datatype]}_contents": VALUES[datatype]}}
        answer = stub.ModelInfer(service_pb2.ModelInferRequest(model_name=model, inputs=[listed]))
        np.testing.assert_array_equal(triton.InferResult(answer).as_numpy("y"), np.array(VALUES[datatype], dtype))
    short = service_pb2.ModelInferRequest(model_name=model, inputs=[tensor])
    refused(Code.INVALID_ARGUMENT, "got 0 elements", lambda: stub.ModelInfer(short))


def test_versions_and_large_tensors(client):
    for version, answered, factor in (("", "12", 12), ("-1", "12", 12), ("3", "3", 3)):
        result = client.infer("numbered", rows(3), model_version=version)
        assert (result.as_numpy("y").item(), result.get_response().model_version) == (3 * factor, answered)
    large = np.arange(3_000_000, dtype=np.float32)[:, None]  # gRPC takes 4 MiB by default
    np.testing.assert_array_equal(client.infer("double", given(large)).as_numpy("y"), large * 2)
    texts = np.array([b"%d" % number for number in range(60_000)], object)
    assert (client.infer("string", given(texts, "BYTES")).as_numpy("y") == texts).all()


X = {"name": "x", "datatype": "FP32", "shape": [1, 1]}
RAW = {"inputs": [X], "raw_input_contents": [b"\0\0\x80\x3f"]}
ONE = {"classification": {"int64_param": 1}}
REFUSED = [
    ({**RAW, "model_name": "nobody"}, Code.NOT_FOUND, "no model 'nobody'"),
    ({**RAW, "inputs": [{**X, "shape": [-1, 1]}]}, Code.INVALID_ARGUMENT, "lengths from 0"),
    ({"inputs": [{**X, "shape": [0, 1 << 45, 1 << 45]}]}, Code.INVALID_ARGUMENT, "0 elements"),
    ({**RAW, "inputs": [X, X]}, Code.INVALID_ARGUMENT, "2 inputs have 1 raw_input_contents"),
    ({**RAW, "inputs": [{**X, "contents": {"fp32_contents": [1]}}]}, Code.INVALID_ARGUMENT, "give one of them"),
    ({"inputs": [{**X, "datatype": "INT8", "contents": {"int_contents": [300]}}]}, Code.INVALID_ARGUMENT, "int8"),
    ({**RAW, "parameters": {"sequence_id": {"uint64_param": 5}}}, Code.INVALID_ARGUMENT, "no sequences"),
    ({**RAW, "raw_input_contents": [b"\0\0\x80\xbf"]}, Code.INTERNAL, "a row that the model does not bear"),
    ({**RAW, "outputs": [{"name": "y", "parameters": ONE}]}, Code.UNIMPLEMENTED, "this door has no classification"),
]


@pytest.mark.parametrize(("fields", "code", "text"), REFUSED)
def test_what_is_wrong_is_refused_with_a_code_and_a_line(fields, code, text, stub):
    refused(code, text, lambda: stub.ModelInfer(service_pb2.ModelInferRequest(**{"model_name": "double", **fields})))


def test_silent_callers_and_the_bytes_of_all_messages_have_bounds(running):
    """And who gives up at any moment leaves nothing behind."""

    def held():
        return int(httpx.get(f"{door.url}/held").text)

    def message(model, nbytes=4):
        x = {"name": "x", "datatype": "FP32", "shape": [nbytes // 4, 1]}
        made = service_pb2.ModelInferRequest(model_name=model, inputs=[x], raw_input_contents=[bytes(nbytes)])
        return made.SerializeToString()

    bare, most = str(Path(__file__).with_name("bare.py")), (1 << 20) - 100
    with start_door(running, 'max_body = "1MiB"\n', bare) as door, grpc.insecure_channel(door.grpc) as channel:
        grpc.channel_ready_future(channel).result(WAIT_S)
        path = "/inference.GRPCInferenceService/ModelInfer"
        call = channel.unary_unary(path)
        stream = silent(channel, "ModelStreamInfer", message("double"))
        assert next(stream), "premise: its first message is answered"
        calls = [stream, *(silent(channel, "ModelInfer") for _ in range(7))]
        until(lambda: sum(each.done() for each in calls) == 4, "all but four are left")
        assert stream.done(), "those that have waited the longest"
        refused(Code.INVALID_ARGUMENT, "no such message", lambda: call(b"\xff" * 100))
        refused(Code.INVALID_ARGUMENT, "no message", lambda: channel.stream_unary(path)(iter([])))
        assert {each.code() for each in calls} == {Code.DEADLINE_EXCEEDED}
        waiting = [call.future(message("shut", most)) for _ in range(4)]
        until(lambda: held() > 4 * most, "four are held")
        refused(Code.RESOURCE_EXHAUSTED, "as many bytes", lambda: call(message("nobody", most)))
        refused(Code.NOT_FOUND, "nobody", lambda: call(message("nobody")))
        for number in range(200):
            waiting.append(call.future(message("shut", number % 2 * most)))
            time.sleep(number % 7 / 5000)
            waiting.pop().cancel()
        (running.folder / "open").touch()
        assert all(each.result(WAIT_S) for each in waiting)
        until(lambda: held() == 0, "nothing is held")
        assert "ERROR" not in (running.folder / f"door{door.address[-5:]}.log").read_text()


def frame(kind, flags, stream, payload=b""):
    """Of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def test_who_reads_no_answers_keeps_the_places_of_one_connection(door, channel):
    """It opens no window for them, and sends more calls than the door has at a time."""
    names = {":method": "POST", ":scheme": "http", ":path": "/grpc.health.v1.Health/Check", ":authority": "localhost"}
    texts = [text for pair in {**names, "content-type": "application/grpc", "te": "trailers"}.items() for text in pair]
    head = b"".join(b"\0" * (not at % 2) + bytes([len(text)]) + text.encode() for at, text in enumerate(texts))
    with connected(door.grpc) as peer:
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"\0\4" + bytes(4)) + frame(4, 1, 0))
        for stream in range(1, 2 * rpc.MOST_CALLS + 200, 2):
            peer.sendall(frame(1, 4, stream, head) + frame(0, 1, stream, bytes(5)))
        peer.sendall(frame(6, 0, 0, b"all read"))
        said = b""
        while frame(6, 1, 0, b"all read") not in said:
            said += peer.recv(1 << 16) or pytest.fail("the door has hung up")
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=WAIT_S) == b"\x08\x01"


def test_a_refused_call_leaves_nothing_to_the_garbage_collector():
    kept = []

    class Refusing:
        SERVICES = ("grpc.health.v1.Health",)

        async def check(self, *_):
            kept.append(weakref.ref(_array := np.zeros(1)))
            raise InvalidInput("no")

    async def main():
        settings = SimpleNamespace(grpc=free_address(), certificate=None, max_body=1 << 20)
        stopping, door = asyncio.Event(), SimpleNamespace(settings=settings, tokens=None, held_bytes=0)
        serving = asyncio.create_task(rpc.serve(door, [Refusing()], stopping))
        async with grpc.aio.insecure_channel(settings.grpc) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="no"):
                await channel.unary_unary("/grpc.health.v1.Health/Check")(b"", wait_for_ready=True, timeout=WAIT_S)
        stopping.set()
        await serving

    asyncio.run(main())
    assert [each() for each in kept] == [None]


def test_deadlines_timeouts_and_cancelled_calls_withdraw_their_jobs(running, jobs, stub):
    wanted = service_pb2.ModelInferRequest(model_name="gated", **RAW)
    blocking = stub.ModelInfer.future(wanted)
    until(lambda: jobs() == 1, "a running job")
    refused(Code.DEADLINE_EXCEEDED, "", lambda: stub.ModelInfer(wanted, timeout=0.3))
    short = service_pb2.ModelInferRequest(model_name="gated", parameters={"timeout": {"int64_param": 300_000}}, **RAW)
    refused(Code.DEADLINE_EXCEEDED, "", lambda: stub.ModelInfer(short, timeout=60))
    cancelled = stub.ModelInfer.future(wanted)
    until(lambda: jobs() == 2, "a waiting job")
    cancelled.cancel()
    until(lambda: jobs() == 1, "its withdrawal")
    (running.folder / "gate").touch()
    assert len(blocking.result(WAIT_S).raw_output_contents) == 1
    assert len((running.folder / "runs").read_text().splitlines()) == 1


def test_a_stream_answers_in_order_and_outlives_errors(client):
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put(error or result))
    for number in range(20):
        client.async_stream_infer("double" if number % 5 else "nobody", rows(number), enable_empty_final_response=True)
    found = [answers.get(timeout=WAIT_S) for _ in range(20)]
    client.stop_stream()
    for number, answer in enumerate(found):
        assert answer.as_numpy("y").item() == 2 * number if number % 5 else "no model 'nobody'" in str(answer)
    assert found[1].get_response().parameters["triton_final_response"].bool_param


def test_the_asyncio_client_runs_many_and_a_stream_keeps_the_order_of_a_stateful_model(door):
    async def requests():
        for _ in range(10):
            yield {"model_name": "count", "inputs": rows(0)}

    async def main():
        async with triton_aio.InferenceServerClient(door.grpc) as client:
            found = await asyncio.gather(*(client.infer("double", rows(number)) for number in range(1000)))
            assert [each.as_numpy("y").item() for each in found] == [2 * number for number in range(1000)]
            counted = [result.as_numpy("y").item() async for result, _ in client.stream_infer(requests())]
            assert counted == [*range(counted[0], counted[0] + 10)]

    asyncio.run(main())


def test_tls_tokens_and_the_limit_of_a_message(running, tmp_path):
    section = f'{certificate(tmp_path)}tokens = "{tmp_path}/tokens"\n'
    token = new(tmp_path / "tokens", "me")
    credentials = grpc.ssl_channel_credentials((tmp_path / "cert.pem").read_bytes())
    with start_door(running, f'{section}max_body = "1MiB"\n') as door:
        address, root = door.grpc.replace("127.0.0.1", "localhost"), str(tmp_path / "cert.pem")
        with grpc.secure_channel(address, credentials) as channel:
            grpc.channel_ready_future(channel).result(WAIT_S)
            assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"") == b"\x08\x01", "SERVING"
            for method in ("ModelInfer", "ModelStreamInfer"):
                waiting = silent(channel, method, authorization=f"Bearer {token}")
                refused(Code.UNAUTHENTICATED, "Bearer", lambda method=method: next(silent(channel, method)))
                assert not waiting.done(), "premise: who has a token may take his time"
        with triton.InferenceServerClient(address, ssl=True, root_certificates=root) as client:
            for headers in ({}, {"authorization": f"Bearer {token}x"}, {"authorization": token}):
                with pytest.raises(InferenceServerException, match=r"UNAUTHENTICATED.*Bearer TOKEN"):
                    client.infer("double", rows(1), headers=headers)
            shown = {"authorization": f"Bearer {token}"}
            client.infer("double", rows(1), headers=shown)
            with pytest.raises(InferenceServerException, match="RESOURCE_EXHAUSTED"):
                client.infer("double", given(np.zeros((1 << 18, 1), np.float32)), headers=shown)


def test_grpc_alone_at_one_address_until_the_pool_and_then_the_door_end(start_pool, tmp_path):
    pool = start_pool('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "double"\npath = "stub:double"\n')
    address = free_address()
    (tmp_path / "config.toml").write_text(f'[door]\ngrpc = "{address}"\n')
    config = ["--config", str(tmp_path / "config.toml")]
    command = [sys.executable, "-m", "pool", "door", *config, "--endpoint", pool.endpoint]
    with subprocess.Popen(command) as door, triton.InferenceServerClient(address) as client:
        try:
            with grpc.insecure_channel(address) as channel:
                grpc.channel_ready_future(channel).result(WAIT_S)
            second = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
            assert second.returncode == 2
            assert f"door.grpc: {address} is taken" in second.stderr
            assert client.infer("double", rows(1)).as_numpy("y").item() == 2
            pool.kill()
            assert not client.is_server_ready()
            with pytest.raises(InferenceServerException, match="DEADLINE_EXCEEDED"):
                client.infer("double", rows(1), client_timeout=0.5)
            door.send_signal(signal.SIGTERM)
            assert door.wait(WAIT_S) == 0
        finally:
            door.kill()

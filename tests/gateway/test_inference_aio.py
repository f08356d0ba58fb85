"""`tritonclient.http.aio`, as it is, against a gateway of a pool with stub models."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.http.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from gateway.fakes import Echo, asked, infer
from gateway.running import Gateway
from pool.client.spans import piece_of
from pool.gateway.http.compression import WORTH_BYTES
from pool.gateway.inference import Inference
from pool.wire.tensors import Array
from support.pool_process import PoolProcess
from support.processes import eventually


def asking(door: Gateway, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with InferenceServerClient(door.address) as client:
            return await ask(client)

    return asyncio.run(main())


def tensor(array: Array, name: str = "x") -> InferInput:
    return InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)).set_data_from_numpy(array)


def test_many_jobs_of_many_kinds_at_once(door: Gateway) -> None:
    arrays = [np.full((size, 3), size, "f4") for size in range(1, 30)]
    arrays.append(np.random.default_rng(1).random((224, 224, 3), np.float32))

    async def ask(client: Any) -> list[Any]:
        jobs = [client.infer("echo", [tensor(array)], request_id=str(array.size)) for array in arrays]
        return list(await asyncio.gather(*jobs))

    for array, result in zip(arrays, asking(door, ask), strict=True):
        assert result.as_numpy("x").tobytes() == array.tobytes()
        assert result.get_response()["id"] == str(array.size)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_strings_compressed_both_ways(door: Gateway, algorithm: str) -> None:
    text = np.array([b"\xff" * 70_000, b""], object)
    how = {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}
    result = asking(door, lambda c: c.infer("echo", [tensor(text)], parameters={"signature": "string"}, **how))
    assert result.as_numpy("x").tolist() == text.tolist()


def test_json_answers_and_errors(door: Gateway) -> None:
    outputs = [InferRequestedOutput("x", binary_data=False)]
    result = asking(door, lambda c: c.infer("echo", [tensor(np.array([1.5], "f4"))], outputs=outputs))
    assert result.get_output("x")["data"] == [1.5]
    with pytest.raises(InferenceServerException, match="did you mean 'echo'") as caught:
        asking(door, lambda c: c.infer("ecko", [tensor(np.zeros(1, "f4"))]))
    assert caught.value.status() == "404"
    with pytest.raises(InferenceServerException, match="no signature 'nope'") as caught:
        asking(door, lambda c: c.get_model_metadata("echo", query_params={"signature": "nope"}))
    assert len(caught.value.message()) > WORTH_BYTES, "it would be compressed, and the client could not read it"


def test_what_is_there_can_be_asked(door: Gateway) -> None:
    async def ask(client: Any) -> None:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("echo", "1")
        assert (await client.get_server_metadata())["name"] == "tf-worker-pool"
        assert (await client.get_model_metadata("echo"))["inputs"][0]["name"] == "x"
        assert (await client.get_model_config("echo"))["name"] == "echo"
        assert {each["name"] for each in await client.get_model_repository_index()} == {"echo", "faults", "counter"}
        assert len((await client.get_inference_statistics())["model_stats"]) == 3
        with pytest.raises(InferenceServerException, match="logging extension is not served"):
            await client.get_log_settings()

    asking(door, ask)


def test_who_hangs_up_cancels_his_job(door: Gateway, pool: PoolProcess) -> None:
    with pool.client() as own:

        async def ask(client: Any) -> None:
            sleeps = [tensor(np.array(9.0), "seconds")]
            jobs = [
                asyncio.ensure_future(client.infer("faults", sleeps, parameters={"signature": "sleep"}))
                for _ in range(20)
            ]
            await asyncio.to_thread(eventually, lambda: own.status().queue.jobs == len(jobs))
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

        before = own.status().answered
        asking(door, ask)
        eventually(lambda: own.status().queue.jobs == 0)
        after = own.status().answered
        assert after.get("cancelled", 0) - before.get("cancelled", 0) == 20
        assert after.get("done", 0) == before.get("done", 0)


def test_a_tensor_that_lies_in_shared_memory_is_sent_where_it_lies(pool: PoolProcess) -> None:
    array = np.random.default_rng(1).random((224, 224, 3), np.float32)
    body, header_bytes = InferenceServerClient.generate_request_body([tensor(array)])
    with pool.client() as own:
        lent = own.empty(len(body), np.uint8)
        lent[:] = np.frombuffer(body, np.uint8)
        request = infer(b"", header_bytes)
        request.body = lent
        client = Echo()
        asked(Inference(), client, request)
        [(_, inputs, _)] = client.jobs
        whole, piece = piece_of(lent), piece_of(inputs["x"])
        assert whole is not None, "its premise"
        assert piece is not None
        assert (piece.region, piece.offset) == (whole.region, whole.offset + header_bytes)
        assert inputs["x"].tobytes() == array.tobytes()

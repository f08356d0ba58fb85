"""A model behind LitServe: `CASE WORKERS BATCH WAIT_MS PORT FAST_QUEUE`. Bodies and answers are raw bytes."""

import sys
from pathlib import Path
from typing import Annotated, Any

import litserve
from fastapi import Depends, Request, Response

from benchmarks.cases import Case


async def body(request: Request) -> bytes:
    raw: bytes = await request.body()
    return raw


class Model(litserve.LitAPI):  # type: ignore[misc]  # mypy has no litserve
    def setup(self, device: object) -> None:  # noqa: ARG002
        from benchmarks.servers.serving_model import ServingModel

        self._model = ServingModel(Case.read(Path(sys.argv[1])), 0 if sys.argv[2] == "1" else 1)

    def decode_request(self, request: Annotated[bytes, Depends(body)]) -> bytes:
        return request

    def batch(self, inputs: Any) -> Any:
        return inputs

    def predict(self, inputs: Any) -> Any:
        return self._model.answer(inputs)

    def unbatch(self, output: Any) -> Any:
        return output

    def encode_response(self, output: bytes) -> Response:
        return Response(output, media_type="application/octet-stream")


if __name__ == "__main__":
    workers, batch, wait_ms, port, fast = (int(word) for word in sys.argv[2:7])
    api = Model(max_batch_size=batch, batch_timeout=wait_ms / 1000)
    server = litserve.LitServer(
        api, accelerator="cpu", devices=1, workers_per_device=workers, timeout=60, fast_queue=bool(fast)
    )
    server.run(host="127.0.0.1", port=port, generate_client_file=False, log_level="warning", access_log=False)

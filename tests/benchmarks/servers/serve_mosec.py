"""A model behind mosec: `CASE WORKERS BATCH WAIT_MS` and mosec's own options. Bodies and answers are raw bytes."""

import sys
from pathlib import Path
from typing import Any

from mosec import Server, Worker

from benchmarks.cases import Case

CASE, WORKERS, BATCH, WAIT_MS = Path(sys.argv[1]), *(int(word) for word in sys.argv[2:5])


class Model(Worker):  # type: ignore[misc]  # mypy has no mosec
    """Does without the JSON on both ways."""

    resp_mime_type = "application/octet-stream"

    def __init__(self) -> None:
        super().__init__()
        from benchmarks.servers.serving_model import ServingModel  # the parent of the workers needs no TensorFlow

        self._model = ServingModel(Case.read(CASE), 0 if WORKERS == 1 else 1)

    def deserialize(self, data: bytes) -> bytes:
        return data

    def serialize(self, data: bytes) -> bytes:
        return data

    def forward(self, data: Any) -> Any:
        return self._model.answer(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, num=WORKERS, max_batch_size=BATCH, max_wait_time=WAIT_MS)
    server.run()

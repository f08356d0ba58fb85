"""A model behind mosec: `PATH WORKERS BATCH` and mosec's own options. Bodies are raw bytes both ways, no JSON."""

import sys
from pathlib import Path
from typing import Any

from mosec import Server, Worker

from benchmarks.models import Graph

PATH, WORKERS, BATCH = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


class Model(Worker):  # type: ignore[misc]
    resp_mime_type = "application/octet-stream"
    serialize = deserialize = staticmethod(lambda data: data)  # as it is, without a copy

    def __init__(self) -> None:
        super().__init__()
        self._graph = Graph(PATH)

    def forward(self, data: Any) -> Any:
        return self._graph.answer(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, num=WORKERS, max_batch_size=BATCH, max_wait_time=1)
    server.run()

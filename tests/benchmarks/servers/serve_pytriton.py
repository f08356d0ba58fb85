"""A model behind PyTriton: `CASE WORKERS BATCH WAIT_US PORT`. Triton joins the rows of a batch itself."""

import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

from benchmarks.cases import Case
from benchmarks.servers.serving_model import ServingModel

LOAD_S = 40.0


def function(case: Case, workers: int) -> Any:
    model = ServingModel(case, 0 if workers == 1 else 1)

    @batch  # type: ignore[untyped-decorator]  # mypy has no pytriton
    def infer(x: Any) -> list[Any]:
        if case.dtype == "string":
            x = x.reshape(-1).astype(object)
        return [model.run(x).reshape(len(x), -1)]

    return infer


def loaded(url: str) -> bool:
    """Whether Triton has the model within a while."""
    deadline = time.monotonic() + LOAD_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return True
        except OSError:
            time.sleep(0.5)
    return False


if __name__ == "__main__":
    case = Case.read(Path(sys.argv[1]))
    workers, max_batch, wait_us, port = (int(word) for word in sys.argv[2:6])
    config = TritonConfig(http_address="127.0.0.1", http_port=port, allow_grpc=False, allow_metrics=False)
    with Triton(config=config) as triton:
        text = case.dtype == "string"
        triton.bind(
            model_name=case.name,
            infer_func=[function(case, workers) for _ in range(workers)],
            inputs=[Tensor(name="x", dtype=np.bytes_ if text else np.float32, shape=(1,) if text else case.row)],
            outputs=[Tensor(name="y", dtype=np.float32, shape=(-1,))],
            config=ModelConfig(max_batch_size=max_batch, batcher=DynamicBatcher(max_queue_delay_microseconds=wait_us)),
        )
        triton.run()
        if not loaded(f"http://127.0.0.1:{port}/v2/models/{case.name}/ready"):
            sys.exit(1)  # it would serve on without its model; its log says why
        triton.serve()

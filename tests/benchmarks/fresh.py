"""What can be measured in a fresh process only: `import-pool`, or `load CASE`, as a worker loads. Prints JSON."""

import json
import sys
import time

__all__: list[str] = []


def import_pool() -> dict[str, float]:
    """`import pool` and its client, after numpy. Processor time: the wall's is that of whatever else runs."""
    began = time.process_time()
    import numpy  # noqa: F401

    between = time.process_time()
    from pool import Client  # noqa: F401

    return {"numpy": between - began, "pool": time.process_time() - between}


def load(path: str) -> dict[str, float]:
    """Until the first answer."""
    began = time.perf_counter()
    from pathlib import Path

    from benchmarks.cases import Case, rows_of
    from pool.wire.worker_messages import ModelSettings, TensorFlowSettings
    from workers.tf.backend import TensorFlowBackend

    case = Case.read(Path(path))
    between = time.perf_counter()
    settings = TensorFlowSettings(True, 0.0, True, False, 0, 0, {}, False)
    model = TensorFlowBackend(settings, 0).load(ModelSettings(case.name, case.path, True))
    model.warm_up()
    model.run(case.signature, {case.input: rows_of(case, 1)[0]}, [case.output])
    return {"import": between - began, "load": time.perf_counter() - between}


if __name__ == "__main__":
    result = import_pool() if sys.argv[1] == "import-pool" else load(sys.argv[2])
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()  # whoever asked does not wait for the end of this process

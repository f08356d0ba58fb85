"""What a job through the pool costs beside the same model in one's own process: `python tests/benchmarks/spine.py`.

Each figure is the median of rounds taken in turn (A B A B …), in one run, with checked answers: timings on shared
machines drift, ratios within a run hold.
"""

import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from rich.console import Console
from rich.table import Table

import pool
from pool.demo import demo_folder
from pool.wire.worker_messages import ModelSettings, SessionSettings

ROUNDS = 7
JOBS = 400


def main() -> None:
    from workers.tf.backend import TensorFlowBackend
    from workers.tf.library import tf

    path = str(demo_folder() / "digits")
    image = np.zeros((1, 64), np.float32)
    settings = SessionSettings(True, 0.0, True, False, 0, 0, {}, False)
    callable_ = TensorFlowBackend(settings, 0).load(ModelSettings("digits", path, True))
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        definition = tf.compat.v1.saved_model.loader.load(session, ["serve"], path).signature_def["serving_default"]
    fetches = {name: info.name for name, info in definition.outputs.items()}
    feed = definition.inputs["pixels"].name
    expected = session.run(fetches, {feed: image})["probabilities"]

    with pool.start() as running:

        def one_at_a_time() -> np.ndarray:
            return running.run("digits", image)["probabilities"]

        def in_flight(count: int) -> Callable[[], np.ndarray]:
            def job() -> np.ndarray:
                for result in running.map("digits", (image for _ in range(count)), in_flight=count):
                    last = result
                return last["probabilities"]

            return job

        def prepared() -> np.ndarray:
            return callable_.run("serving_default", {"pixels": image}, ["label", "probabilities"])["probabilities"]

        ways: dict[str, tuple[Callable[[], np.ndarray], int]] = {
            "Session.run in this process": (lambda: session.run(fetches, {feed: image})["probabilities"], 1),
            "prepared callable in this process": (
                lambda: callable_.run("serving_default", {"pixels": image}, ["label", "probabilities"])[
                    "probabilities"
                ],
                1,
            ),
            "client.run, one at a time": (one_at_a_time, 1),
            "client.map, 64 in flight": (in_flight(64), 64),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for round_ in range(ROUNDS + 1):
            for name, (way, jobs) in ways.items():
                turns = max(1, JOBS // jobs)
                began = time.perf_counter()
                for _ in range(turns):
                    answer = way()
                each = (time.perf_counter() - began) / turns / jobs
                np.testing.assert_allclose(answer, expected, rtol=1e-5)
                if round_:  # the first warms up
                    seconds[name].append(each)

    base = statistics.median(seconds["Session.run in this process"])
    table = Table("the demo model, one row a job", "µs a job", "x Session.run")
    for name, samples in seconds.items():
        median = statistics.median(samples)
        table.add_row(name, f"{median * 1e6:.0f}", f"{median / base:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()

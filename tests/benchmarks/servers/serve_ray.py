"""A model behind Ray Serve, and its caller by handle: `CASE EXPECTED WORKERS BATCH WAIT_MS`.

Asked `{"seconds": 2, "in_flight": 64}`, it calls for so long, checks, and answers with rows a second; with
`"in_flight": 0` one at a time, with the median in seconds.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray import serve

from benchmarks.cases import Case, rows_of
from benchmarks.turns import Turns

CASE = Case.read(Path(sys.argv[1]))
WORKERS, BATCH, WAIT_MS = (int(word) for word in sys.argv[3:6])


class Replica:
    def __init__(self, case: Case, threads: int) -> None:
        from benchmarks.servers.serving_model import ServingModel

        self._case = case
        self._model = ServingModel(case, threads)

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=WAIT_MS / 1000)  # type: ignore[untyped-decorator]  # mypy has no ray
    async def __call__(self, rows: list[Any]) -> list[Any]:
        return list(self._model.run(np.concatenate(rows)))


class Pending:
    def __init__(self, response: Any) -> None:
        self._response = response

    def result(self) -> dict[str, Any]:
        return {CASE.output: self._response.result(timeout_s=60)[None]}


def main() -> None:
    turns = Turns(CASE, rows_of(CASE), list(np.load(sys.argv[2])))
    ray.init(include_dashboard=False, logging_level="error", log_to_driver=False)
    serve.start(proxy_location="Disabled")  # nobody comes by HTTP
    options = {"num_cpus": 0}
    deployment = serve.deployment(
        num_replicas=WORKERS, ray_actor_options=options, max_ongoing_requests=BATCH * 4, max_queued_requests=-1
    )(Replica)
    handle = serve.run(deployment.bind(CASE, 0 if WORKERS == 1 else 1), route_prefix=None)

    def submit(row: Any) -> Pending:
        return Pending(handle.remote(row))

    submit(turns.rows[0]).result()
    _say({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["in_flight"]:
            _say({"figure": turns.window(submit, asked["in_flight"], asked["seconds"])})
        else:
            _say({"figure": turns.alone(lambda row: submit(row).result()[CASE.output], asked["seconds"])})
    serve.shutdown()
    ray.shutdown()


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

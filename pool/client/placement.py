"""What of a model runs where, as a worker reports it."""

import json
from typing import Any

from pool.client.futures import JobFuture
from pool.errors import Incompatible
from pool.wire.signatures import REPORT

__all__ = ["report_of"]


def report_of(model: str, future: JobFuture) -> dict[str, Any]:
    """Waits for the answer to a job of the signature `PLACEMENT`; raises what its future raises.

    {"model", "slot", "device", "devices": ["/cpu:0", …], "signatures": {name: {"nodes": [{"node", "function", "op",
    "device", "rule"}, …], "why": None, or why it was not run}}, "rules": [{"layers", "device", "matched", "ran",
    "elsewhere": [{"node", "device"}, …], "absent": [node, …], "kept"}, …]}. `function` is "" for a node of the graph
    itself; `rule` is the number, from 0, of the rule that moved the node. `absent` nodes were to run and did not, as
    what TensorFlow folds away; `kept` is None where nothing of a rule was to run.
    """
    answer = future.result()
    try:
        report = json.loads(answer[REPORT].item())
    except (KeyError, ValueError) as error:
        raise Incompatible(f"the worker's report cannot be read: {error}") from None
    timeline = future.timeline
    assert timeline is not None  # the job is done
    return {"model": model, "slot": timeline.slot, "device": timeline.device, **report}

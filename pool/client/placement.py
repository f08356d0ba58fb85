"""What of a model runs where, as a worker reports it."""

import json
from typing import TYPE_CHECKING

from pool.client.futures import JobFuture
from pool.errors import Incompatible
from pool.wire.codec import BadFrame, packed, unpack
from pool.wire.signatures import REPORT

if TYPE_CHECKING:
    from pool.wire.records import Placement

__all__ = ["report_of"]


def report_of(model: str, future: JobFuture) -> "Placement":
    """Waits for the answer to a job of the signature `PLACEMENT`; raises what its future raises.

    Raises `Incompatible` for what is no report.
    """
    from pool.wire.records import Placement  # a client that never asks does without them

    answer = future.result()
    timeline = future.timeline
    assert timeline is not None  # the job is done
    where = {"model": model, "slot": timeline.slot, "device": timeline.device}
    try:
        said = packed({**json.loads(answer[REPORT].item()), **where})
        return unpack(Placement, said, len(said))
    except (KeyError, TypeError, ValueError, BadFrame) as error:
        raise Incompatible(f"the worker's report cannot be read: {error}") from None

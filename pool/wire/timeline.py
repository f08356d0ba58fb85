"""Where a job's time went, as the pool and the worker measured it."""

from dataclasses import dataclass

__all__ = ["Timeline"]


@dataclass(slots=True)  # not frozen: the pool makes one a job, and a frozen one takes five times as long
class Timeline:
    """Durations in seconds. Of a job that was split, those of the piece whose answer came last.

    `job` is the pool's own number of the job, for `pool explain`. From its arrival in the pool on, the job waited
    `queue_s` for a lane and `batch_wait_s` for company that `batch_wait` asked for; `feed_s` is the way to the worker
    and back and the joining of the batch, `run_s` TensorFlow's own time, `fetch_s` the cutting of the answers.
    `batch_rows` were sent to the lane together, padding not counted: one run of the model, or, of a large job or chunk
    where runs are quick, several of at most `max_batch`. `attempts` counts the runs that began.
    `version` of the model ran it, None where it has no numbered versions.
    """

    job: int
    queue_s: float
    batch_wait_s: float
    feed_s: float
    run_s: float
    fetch_s: float
    rows: int
    batch_rows: int
    slot: int
    device: str
    attempts: int
    version: int | None = None

"""Where a job's time went, as its caller sees it."""

from dataclasses import dataclass

from pool.wire.timeline import Timeline

__all__ = ["JobTimeline"]


@dataclass(frozen=True, slots=True)
class JobTimeline:
    """The segments of `wall_s`, in seconds: from the call of `submit` until the future is finished.

        encode_s      the inputs are checked, and copied as they travel
        queue_s       waiting for a connection and, with `block=True`, for room in the pool; there, for a free lane
        batch_wait_s  waiting for company, where the model's `batch_wait` asks for it
        feed_s        on the way to the worker, and joined with the rest of the batch
        run_s         inside TensorFlow
        fetch_s       the answers are cut, and on the way back to the pool
        reply_s       the rest: between this process and the pool, both ways, and the decoding of the answer

    They add up to `wall_s` because `reply_s` is what the others leave. The others are measured by three processes, each
    by its own clock, within the time that this one waits: on one machine that leaves no less than 0.0.
    Jobs that travelled in one chunk share all but their `rows`. Of a job that was split, the pool's and the worker's
    segments are those of the piece that was answered last.

    `job` is the pool's number of the job, as `pool explain` takes it. Its `rows` were run as some of `batch_rows` in
    `slot`, on `device`: in one go, or one after the other where those are more than `max_batch`. `attempts` counts
    the runs that began. `version`: of the model that ran, None where it has no numbered versions.
    """

    encode_s: float
    queue_s: float
    batch_wait_s: float
    feed_s: float
    run_s: float
    fetch_s: float
    reply_s: float
    wall_s: float
    job: int
    rows: int
    batch_rows: int
    slot: int
    device: str
    attempts: int
    version: int | None = None

    @classmethod
    def measured(cls, pool: Timeline, *, encode_s: float, held_s: float, wall_s: float) -> "JobTimeline":
        """`held_s`: from the end of the encoding until the job left this process, the last time that it did."""
        others_s = encode_s + held_s + sum((pool.queue_s, pool.batch_wait_s, pool.feed_s, pool.run_s, pool.fetch_s))
        return cls(
            encode_s=encode_s,
            queue_s=held_s + pool.queue_s,
            batch_wait_s=pool.batch_wait_s,
            feed_s=pool.feed_s,
            run_s=pool.run_s,
            fetch_s=pool.fetch_s,
            reply_s=wall_s - others_s,
            wall_s=wall_s,
            job=pool.job,
            rows=pool.rows,
            batch_rows=pool.batch_rows,
            slot=pool.slot,
            device=pool.device,
            attempts=pool.attempts,
            version=pool.version,
        )

    def segments(self) -> tuple[tuple[str, float], ...]:
        """Name and seconds of each, in the order of time."""
        return (
            ("encode", self.encode_s),
            ("queue", self.queue_s),
            ("batch wait", self.batch_wait_s),
            ("feed", self.feed_s),
            ("run", self.run_s),
            ("fetch", self.fetch_s),
            ("reply", self.reply_s),
        )

    def __str__(self) -> str:
        parts = " + ".join(f"{name} {seconds * 1000:.2f}" for name, seconds in self.segments())
        again = f", attempt {self.attempts}" if self.attempts > 1 else ""
        rows = f"{self.rows} of {self.batch_rows} rows"
        if self.rows > self.batch_rows > 0:
            rows = f"{self.rows} rows in pieces, the last of {self.batch_rows},"
        return (
            f"job {self.job}: {self.wall_s * 1000:.2f} ms = {parts}; {rows} in slot {self.slot} ({self.device}){again}"
        )

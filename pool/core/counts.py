"""What is counted: plain records, which `status` shows. Nothing here is ever reset."""

from dataclasses import dataclass, field

__all__ = ["Counts"]


def _histogram() -> list[int]:
    """Bucket `i` counts what is below 2**i and not below 2**(i - 1)."""
    return [0] * 48


@dataclass(slots=True, eq=False)
class Counts:
    """Of one model. Each accepted job is counted once in `answered`, `failed` or `cancelled`."""

    accepted: int = 0
    answered: int = 0
    cancelled: int = 0  # by their client, or with the end of its channel
    failed: dict[str, int] = field(default_factory=dict)  # by error name
    refused: dict[str, int] = field(default_factory=dict)  # by error name
    again: int = 0  # jobs that had to run once more
    deaths: int = 0  # batches that ended with their worker
    joined: int = 0  # batches of which the lane said that their jobs shared a run
    rows: list[int] = field(default_factory=_histogram)  # of batches
    queue_times: list[int] = field(default_factory=_histogram)  # µs of jobs, from arrival to lease
    run_times: list[int] = field(default_factory=_histogram)  # µs of batches, from lease to the lane's answer

"""What a pool offers of each of its models: by this a client of several pools chooses one for a job."""

from dataclasses import dataclass

__all__ = ["Offer"]


@dataclass(frozen=True, slots=True)
class Offer:
    """`waiting`: jobs that are not answered yet, of all clients. `slots` are READY and have it.

    `stateful`: a run of it may change what later ones return. `job_s`: the device time that a job took so far, on
    average; 0.0 where none has run.
    """

    waiting: int
    slots: int
    stateful: bool
    job_s: float

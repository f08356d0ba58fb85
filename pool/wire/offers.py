"""What a pool offers: by this a client of several pools chooses one for a job."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Offer", "Offers"]


@dataclass(frozen=True, slots=True)
class Offer:
    """Of a model. `slots` are READY and have it. `stateful`: a run of it may change what later ones return."""

    slots: int
    stateful: bool


@dataclass(frozen=True, slots=True)
class Offers:
    """`waiting`: jobs that are not answered yet, of all clients. `slots` are READY.

    `job_s`: the device time that a job took so far, on average; 0.0 where none has run.
    """

    waiting: int
    slots: int
    job_s: float
    models: Mapping[str, Offer]

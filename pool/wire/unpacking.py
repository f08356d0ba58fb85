"""Why the pool gives a chunk back unanswered, and how its client sends its members then; see UNPACK."""

from enum import Enum

__all__ = ["Unpacking"]


class Unpacking(Enum):
    CANCELLED = "one of its jobs was cancelled before any of them started: the client sends the rest as a smaller chunk"
    NOT_TAKEN = "the pool takes no chunk of such jobs now: the client sends them one by one"
    FAILED = "a run of this chunk alone failed: the client sends its jobs as two halves"
    LOST = "a worker died while it ran the chunk: the client sends its jobs one by one, and each runs alone"

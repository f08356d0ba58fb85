"""Why the pool gives a chunk back unanswered, and how its client sends its members then; see UNPACK."""

from enum import Enum

__all__ = ["Unpacking"]


class Unpacking(Enum):
    CANCELLED = "a member was cancelled before any of them started: those that are left come as one smaller chunk"
    NOT_TAKEN = "its jobs may not travel in chunks, or not any more: they come singly"
    FAILED = "a run with it alone to blame has failed: its members come as two halves"
    LOST = "a worker died with it: its members come singly, and each is tried alone"

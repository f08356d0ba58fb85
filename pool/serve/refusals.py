"""Reasons why messages were not taken, counted within bounds: inventing reasons fills neither memory nor log."""

from collections import Counter

__all__ = ["count"]

MOST_REASONS = 200
REASON_CHARS = 100
OTHERS = "other reasons"


def count(reasons: "Counter[str]", reason: str) -> bool:
    """Counts a reason; True if it is a new one, which is worth a line in the log."""
    key = reason[:REASON_CHARS]
    if key not in reasons and len(reasons) >= MOST_REASONS:
        key = OTHERS
    reasons[key] += 1
    return reasons[key] == 1

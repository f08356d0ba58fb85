"""One line of what the doctor says."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["CANNOT", "FAILED", "OK", "WARNING", "Finding", "Verdict"]


class Verdict(Enum):
    OK = "ok"  # as the pool needs it
    WARNING = "warning"  # the pool works, and something may be slow, small or not as meant
    FAILED = "failed"  # a promise does not hold here
    CANNOT = "cannot"  # it could not be checked here; the finding says why


OK, WARNING, FAILED, CANNOT = Verdict.OK, Verdict.WARNING, Verdict.FAILED, Verdict.CANNOT


@dataclass(frozen=True, slots=True)
class Finding:
    """`advice`: what to do, "" for nothing. `log`: what a process printed that was tried, for a bug report."""

    name: str
    verdict: Verdict
    seen: str
    advice: str = ""
    log: str = ""

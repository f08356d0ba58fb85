"""What a process has cost so far: processor time of all its threads, and how often one of them was woken."""

import resource
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Spent", "spent", "spent_here"]


@dataclass(frozen=True, slots=True)
class Spent:
    processor_s: float
    wake_ups: int

    def since(self, before: "Spent") -> "Spent":
        return Spent(self.processor_s - before.processor_s, self.wake_ups - before.wake_ups)

    def each(self, jobs: int) -> tuple[float, float]:
        """Seconds and wake-ups a job."""
        return self.processor_s / jobs, self.wake_ups / jobs


def spent_here() -> Spent:
    """Of this process, with its threads that have ended."""
    return Spent(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw)


def spent(*pids: int) -> Spent:
    """Of these other processes together, to the nanosecond. What ended threads cost is not in it."""
    processor_s, wake_ups = 0.0, 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                schedstat, status = (task / "schedstat").read_text(), (task / "status").read_text()
            except OSError:
                continue  # it has just ended
            processor_s += int(schedstat.split()[0]) / 1e9
            (voluntary,) = (line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))
            wake_ups += int(voluntary.split()[1])  # it slept so often, and was woken as often
    return Spent(processor_s, wake_ups)

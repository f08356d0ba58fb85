"""What a process holds."""

from pathlib import Path
from typing import NamedTuple


class Figures(NamedTuple):
    mib: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> "Figures":
        told = Path(f"/proc/{pid}/status").read_text().split()
        mib = int(told[told.index("VmRSS:") + 1]) >> 10
        return cls(mib, len([*Path(f"/proc/{pid}/fd").iterdir()]), int(told[told.index("Threads:") + 1]))

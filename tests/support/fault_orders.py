"""The test's side of `fault_hook`: orders given, claims seen, and the way of a slot as the pool's log tells it."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from support.pool_process import PoolProcess
from support.processes import eventually

__all__ = ["Claim", "Orders", "descriptors", "segments", "states_since"]

HOOK = Path(__file__).with_name("fault_hook")

_STATE = re.compile(
    r"\bslot (\d+) cpu:\d+ (STOPPED|STARTING|LOADING|READY|DRAINING|STOPPING|BACKOFF|FATAL)\b(?:: (.*))?"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """Who acted on an order."""

    slot: int
    pid: int


class Orders:
    """A folder of orders. `environ` is what a pool needs for its workers to take them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ: Mapping[str, str] = {"PYTHONPATH": str(HOOK), "FAULT_ORDERS": str(folder)}

    def give(self, whose: str, moment: str, fault: str) -> None:
        """`whose`: `slot-3` or `job-7`. It is there whole or not at all."""
        new = self.folder / f"new-{whose}"
        new.write_text(f"{moment} {fault}")
        new.rename(self.folder / whose)

    def go(self, whose: str = "") -> None:
        """Lets those go on that wait in the fault called "wait"; or the one that waits for the slot to drain."""
        (self.folder / (f"go-{whose}" if whose else "go")).touch()

    def claim(self, whose: str) -> Claim | None:
        for path in self.folder.glob(f"claimed-{whose}-*"):
            _, slot, pid = path.name.rsplit("-", 2)
            return Claim(int(slot), int(pid))
        return None

    def clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()

    def await_claim(self, whose: str, timeout_s: float = 30.0) -> Claim:
        found: list[Claim] = []

        def is_claimed() -> bool:
            claim = self.claim(whose)
            found.extend([] if claim is None else [claim])
            return claim is not None

        eventually(is_claimed, timeout_s, lambda: (whose, sorted(path.name for path in self.folder.iterdir())))
        return found[0]


def states_since(pool: PoolProcess, mark: int, slot: int) -> list[tuple[str, str]]:
    """The slot's states and their reasons, from the log's text after `mark` characters."""
    found = (_STATE.search(line) for line in pool.text()[mark:].splitlines())
    return [(match[2], match[3] or "") for match in found if match is not None and int(match[1]) == slot]


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def segments(pid: int) -> int:
    """How many mappings of memory that has no file of its own a process shares with others."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sum("/memfd:" in line or "/dev/shm/" in line for line in lines)

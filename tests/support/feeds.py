"""How the workers of a pool feed what lies in shared memory, as `feed_hook` counts it there."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Feeds", "counting", "feeds"]

HOOK = Path(__file__).with_name("feed_hook")


@dataclass(frozen=True, slots=True)
class Feeds:
    """Batches of several parts, and rows of all batches, that were fed as one view of the memory or from a copy."""

    views: int
    copies: int
    rows_viewed: int
    rows_copied: int

    def since(self, before: "Feeds") -> "Feeds":
        return Feeds(
            self.views - before.views,
            self.copies - before.copies,
            self.rows_viewed - before.rows_viewed,
            self.rows_copied - before.rows_copied,
        )


def counting(folder: Path) -> dict[str, str]:
    """The environment in which a pool's workers count into this folder."""
    path = os.pathsep.join(filter(None, (str(HOOK), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "FEEDS_INTO": str(folder)}


def feeds(folder: Path) -> Feeds:
    """Of all workers so far."""
    counts = [memoryview(path.read_bytes()).cast("Q") for path in folder.iterdir()]
    return Feeds(*[sum(each[index] for each in counts) for index in range(4)])

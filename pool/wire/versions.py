"""Which folder is the version: models laid out as TensorFlow Serving has them, `NAME/1`, `NAME/2`, …"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MOST_VERSIONS", "STUB_FILES", "Version", "newest", "versions_in"]

MOST_VERSIONS = 100  # of one model that are served at once

STUB_FILES = "stub:files?"
"""Before a folder that is laid out as of SavedModels, and holds stubs: see `workers.stub.backend`."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """`folder` is named by the number, leading zeros allowed."""

    number: int
    folder: Path


def versions_in(folder: Path) -> list[Version]:
    """All folders in it that are named by a number, the lowest first. Raises `OSError`."""
    named = [entry for entry in folder.iterdir() if entry.name.isascii() and entry.name.isdecimal()]
    return sorted(Version(int(entry.name), entry) for entry in named if entry.is_dir())


def newest(versions: Sequence[Version], is_whole: Callable[[Path], bool]) -> Version | None:
    """The one to serve: the highest number whose folder `is_whole`, since one may be on its way here still."""
    return next((version for version in reversed(versions) if is_whole(version.folder)), None)

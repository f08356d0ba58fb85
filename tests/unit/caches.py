"""State folders for tests of what a worker keeps there; each goes with the test's process."""

import tempfile
from pathlib import Path

__all__ = ["new_cache"]

_folders: list["tempfile.TemporaryDirectory[str]"] = []


def new_cache() -> str:
    """The `cache` of a `ModelSettings`."""
    folder = tempfile.TemporaryDirectory(prefix="pt-cache-")
    _folders.append(folder)
    return str(Path(folder.name) / "converted")

"""What lies at a model's path, judged by its files alone. Loading it is what tells."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Servable", "look_at"]

_FILES = ("saved_model.pb", "saved_model.pbtxt")


@dataclass(frozen=True, slots=True)
class Servable:
    """`problem`: why it cannot be served, and what would be right; empty if nothing is seen."""

    kind: str
    problem: str = ""
    needs_tensorflow: bool = True


def look_at(path: str) -> Servable:
    """Reads names of files, never their content. Never raises."""
    if path.startswith("stub:"):
        return Servable("a stub for tests", needs_tensorflow=False)
    model = Path(path)
    try:
        if model.is_dir():
            return _folder(model)
        return Servable("a file", f"{path} is no folder; give the folder of a SavedModel")
    except OSError as error:
        return Servable("unreadable", f"{path} cannot be read: {error.strerror or error}")


def _folder(folder: Path) -> Servable:
    if any((folder / name).is_file() for name in _FILES):
        return Servable("a SavedModel")
    versions = [entry.name for entry in folder.iterdir() if any((entry / name).is_file() for name in _FILES)]
    if versions:
        newest = max(versions, key=lambda name: (int(name) if name.isdecimal() else -1, name))
        return Servable("a folder of SavedModels", f"{folder} holds SavedModels; give one of them: {folder / newest}")
    return Servable("a folder", f"{folder} is no SavedModel: there is no {_FILES[0]} in it")

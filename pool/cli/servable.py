"""What lies at a model's path, judged by its files alone. Loading it is what tells."""

from dataclasses import dataclass, replace

from pool.wire.model_files import NotServed, look, misfit
from pool.wire.worker_messages import ModelSettings

__all__ = ["Servable", "look_at"]


@dataclass(frozen=True, slots=True)
class Servable:
    """`problem`: why it cannot be served, and what would be right; empty if nothing is seen."""

    kind: str
    problem: str = ""
    needs_tensorflow: bool = True


def look_at(model: ModelSettings) -> Servable:
    """Reads names of files and their first bytes, and imports no TensorFlow. Never raises."""
    path = model.path
    if path.startswith("stub:"):
        return Servable("a stub for tests", needs_tensorflow=False)
    try:
        found = look(path)
    except NotServed as error:
        return Servable("not served", f"{path} {error}")
    except OSError as error:
        return Servable("unreadable", f"{path} cannot be read: {error.strerror or error}")
    wrong = misfit(found.format, model.tags, model.inputs, model.outputs)
    found = replace(found, version=found.version if model.version is None else model.version)
    return Servable(str(found), "" if wrong is None else f"{path} {wrong}")

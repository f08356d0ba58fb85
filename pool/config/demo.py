"""Where the built-in demo lies. The worker's package is looked up, not imported: importing it is the workers' right."""

from importlib.util import find_spec
from pathlib import Path

from pool.errors import Incompatible

__all__ = ["demo_folder"]


def demo_folder() -> Path:
    """The folder with `digits/` (a SavedModel), `samples.json` and `seven.json`."""
    spec = find_spec("workers")
    if spec is None or not spec.submodule_search_locations:
        raise Incompatible("the package `workers` is not installed beside `pool`; install tf-worker-pool again")
    return Path(spec.submodule_search_locations[0], "tf", "demo")

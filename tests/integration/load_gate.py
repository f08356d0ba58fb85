"""A model whose load ends when the test says so: what happens meanwhile does, however busy the machine is.

For any stub: the gate is its handler, which changes nothing else. While it is shut, who loads the model waits there.
"""

from pathlib import Path
from typing import Any

from support.processes import eventually

__all__ = ["LoadGate"]

HANDLER = """
import os, time

class Waits:
    def __init__(self, context):
        shut = context.options["shut"]
        while os.path.exists(shut):
            open(shut + ".waits", "w").close()
            time.sleep(0.01)

    def preprocess(self, inputs, signature):
        return inputs
"""


class LoadGate:
    """Open at first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shut, self._waits = folder / "shut", folder / "shut.waits"
        (folder / "waits.py").write_text(HANDLER)

    @property
    def options(self) -> dict[str, Any]:
        """Of `load`."""
        return {
            "handler": "waits:Waits",
            "handler_path": str(self._folder),
            "handler_options": {"shut": str(self._shut)},
        }

    @property
    def keys(self) -> str:
        """The same in a `[[model]]`."""
        return (
            f'handler = "waits:Waits"\nhandler_path = "{self._folder}"\nhandler_options = {{ shut = "{self._shut}" }}\n'
        )

    def shut(self) -> None:
        self._waits.unlink(missing_ok=True)
        self._shut.touch()

    def await_someone(self) -> None:
        """Who has read the model's files, and waits at the gate."""
        eventually(self._waits.exists, 60.0)

    def open(self) -> None:
        self._shut.unlink()

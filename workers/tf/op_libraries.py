"""Libraries of custom ops, which a graph may use as soon as they are loaded. They stay for the life of the process."""

from collections.abc import Sequence
from pathlib import Path

from workers.backend import CannotLoad
from workers.tf.errors import one_line
from workers.tf.library import tf

__all__ = ["load_op_libraries"]


def load_op_libraries(paths: Sequence[str]) -> None:
    """Raises `CannotLoad` with one line for the first that is not there, or is none for this TensorFlow."""
    for path in paths:
        where = f"op_libraries of [tensorflow]: {path}"
        if not Path(path).is_file():
            raise CannotLoad(
                f"{where} is not a file: give a library (.so) that was built with this TensorFlow's headers"
            )
        try:
            tf.load_op_library(path)
        except (tf.errors.OpError, RuntimeError, OSError) as error:
            why = one_line(error)
            raise CannotLoad(f"{where} cannot be loaded into TensorFlow {tf.__version__}: {why}") from error

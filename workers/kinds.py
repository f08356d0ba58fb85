"""Which backend runs which files."""

from typing import TYPE_CHECKING

from workers.backend import BackendMissing

if TYPE_CHECKING:
    from workers.stub.backend import StubBackend
    from workers.tf.backend import TensorFlowBackend

__all__ = ["kind_of"]


def kind_of(path: str) -> "type[StubBackend | TensorFlowBackend]":
    """The backend that runs such files, whose library is imported by now. Raises `BackendMissing`."""
    if path.startswith("stub:"):
        from workers.stub.backend import StubBackend

        return StubBackend
    try:
        from workers.tf.backend import TensorFlowBackend
    except ImportError as error:
        raise BackendMissing(
            f"TensorFlow cannot be imported ({error}); `pip install 'tf-worker-pool[worker]'`, or [gpu] for a GPU"
        ) from error
    return TensorFlowBackend

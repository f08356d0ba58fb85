"""What TensorFlow raises while it runs or loads a model, as text for a caller and a fault."""

import errno
import re

from pool.wire.faults import Fault
from pool.wire.signatures import Refused
from workers.tf.library import tf

__all__ = ["one_line", "passes", "refused"]

_MAX_CHARS = 2000
_MAX_LINE_CHARS = 400
_ALLOCATION = re.compile(
    r"CUDA_ERROR_OUT_OF_MEMORY|(CUDNN|CUBLAS|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
)
# Only these two wrap a failed call of CUDA's libraries; anywhere else the words would be a model's own.
_WRAPS_CUDA = (tf.errors.InternalError, tf.errors.UnknownError)
# What may be otherwise a moment later, whatever the text: the device's memory is still held by the process before.
_PASSING = (
    tf.errors.ResourceExhaustedError,
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.DeadlineExceededError,
    MemoryError,
)
_DEVICE_OR_STORAGE = re.compile(
    r"cuda|cudnn|cublas|cusolver|cusparse|cufft|\bGPU\b|Input/output error|Stale file handle", re.IGNORECASE
)
_LASTING_ERRNOS = frozenset(
    (
        None,  # not from the operating system: a library's own word for a file that it cannot read
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EINVAL,
    )
)
_NODE = re.compile(r"\{\{(?:node|function_node) ([^}]*)\}\}")
# What `Session.run`, unlike a callable, puts before the message: where in Python the op was made.
_PREAMBLE = re.compile(r"\AGraph execution error:\s+(Detected at node .*?\nNode: '[^\n]*\n)?", re.DOTALL)
# What follows is where the model's author built the graph, not what went wrong.
_TRACE = re.compile(r"\n\s*(Original stack trace|Errors may have originated|Function call stack|Detected at node)")
# The way through the calls of functions down to the op that the first line names already.
_CALL_PATH = re.compile(r"\n\s*\[\[.*\]\]\s*(?=\n|$)")


def refused(error: Exception) -> Refused:
    """What a run raised, as `Fault.OUT_OF_MEMORY` or else `Fault.MODEL_FAILED`. The text is bounded."""
    fault = Fault.OUT_OF_MEMORY if _out_of_memory(error) else Fault.MODEL_FAILED
    return Refused(_bounded(f"{type(error).__name__}: {_message(error)}", _MAX_CHARS), fault)


def one_line(error: Exception) -> str:
    """The first useful line of what a load raised."""
    lines = [line.strip() for line in _message(error).splitlines() if line.strip()]
    return _bounded(lines[0], _MAX_LINE_CHARS) if lines else type(error).__name__


def passes(error: Exception) -> bool:
    """True if what a load raised says nothing against the files, so that a later load may succeed."""
    if isinstance(error, OSError):
        return error.errno not in _LASTING_ERRNOS
    if isinstance(error, _WRAPS_CUDA):
        return _DEVICE_OR_STORAGE.search(str(error.message)) is not None
    return isinstance(error, _PASSING)


def _out_of_memory(error: Exception) -> bool:
    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return True
    return isinstance(error, _WRAPS_CUDA) and _ALLOCATION.search(str(error.message)) is not None


def _message(error: Exception) -> str:
    if not isinstance(error, tf.errors.OpError):
        return str(error)
    message = str(error.message)
    useful = _PREAMBLE.sub("", message)
    useful = _TRACE.split("\n" + useful)[0].strip() or message
    text = _CALL_PATH.sub("", useful)
    nodes = _NODE.findall(message)
    named = [node for node in nodes if not node.startswith("__")]
    text = _NODE.sub("", text).strip()
    if named and named[0] not in text:
        text = f"{text} [at op {named[0]}]"
    return text


def _bounded(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"

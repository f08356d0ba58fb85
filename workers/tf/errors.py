"""What TensorFlow raises while it loads or runs a model, as an error of `workers.backend` in one line."""

import errno
import re

from pool.wire.exits import Exit
from workers.backend import RunFailed, Unfit
from workers.tf.library import tf

__all__ = ["of_a_run", "one_line", "passes"]

_MOST_CHARS = 2000
_MOST_CHARS_OF_A_LOAD = 400
_ALLOCATION = re.compile(
    r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|(CUDNN|CUBLAS|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED"
    r"|CUFFT_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_(HOST|DEVICE)_ALLOCATION_FAILED"
)
# Only these two wrap a failed call of CUDA's libraries; anywhere else the words would be a model's own.
_WRAPS_CUDA = (tf.errors.InternalError, tf.errors.UnknownError)
# After one of these every later call gives the same error, says CUDA: "the process must be terminated and relaunched".
_STICKY = (
    # The driver's names, then those of the runtime.
    r"CUDA_ERROR_(ILLEGAL_ADDRESS|LAUNCH_FAILED|LAUNCH_TIMEOUT|ASSERT|HARDWARE_STACK_ERROR|ILLEGAL_INSTRUCTION"
    r"|MISALIGNED_ADDRESS|INVALID_ADDRESS_SPACE|INVALID_PC|TENSOR_MEMORY_LEAK|EXTERNAL_DEVICE|CONTAINED"
    r"|ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|CONTEXT_IS_DESTROYED|DEINITIALIZED)\b",
    r"cudaError(IllegalAddress|LaunchFailure|LaunchTimeout|Assert|HardwareStackError|IllegalInstruction"
    r"|MisalignedAddress|InvalidAddressSpace|InvalidPc|TensorMemoryLeak|ExternalDevice|Contained"
    r"|ECCUncorrectable|NvlinkUncorrectable|ContextIsDestroyed|CudartUnloading)\b",
    # Their words, where TensorFlow passes on no name.
    r"an illegal memory access was encountered|unspecified launch failure|device-side assert triggered"
    r"|an illegal instruction was encountered|uncorrectable ECC error|GPU sync failed",
    # A library that has no handle: whatever keeps it from one, a new process is what cures it.
    r"CU(DNN|BLAS|SOLVER|SPARSE)_STATUS_(NOT_INITIALIZED|INTERNAL_ERROR)\b",
    r"cuDNN failed to initialize|No (DNN|BLAS)( support)? (in|for) stream|without (DNN|BLAS) support"
    r"|Failed to initialize BLAS support|[Ff]ailed to create cu\w+ handle|[Cc]ould not create cu\w+ handle",
)
_DNN = r"DNN library (initialization failed|is not found)"
_UNUSABLE = {
    **dict.fromkeys(_WRAPS_CUDA, re.compile("|".join((*_STICKY, _DNN)))),
    tf.errors.FailedPreconditionError: re.compile(_DNN),
    tf.errors.UnimplementedError: re.compile(_DNN),
    tf.errors.CancelledError: re.compile("Session has been closed"),
    RuntimeError: re.compile("Attempted to use a closed Session"),
}
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
# What follows is where the model's author built the graph, not what went wrong.
_TRACE = re.compile(r"\n\s*(Original stack trace|Errors may have originated|Function call stack|Detected at node)")
# What `Session.run`, unlike a callable, puts before the message: where in Python the op was made.
_PREAMBLE = re.compile(r"\AGraph execution error:\s+(Detected at node .*?\nNode: '[^\n]*\n)?", re.DOTALL)
# The way through the calls of functions down to the op that the first line names already.
_CALL_PATH = re.compile(r"\n\s*\[\[.*\]\]\s*(?=\n|$)")


def of_a_run(error: Exception) -> RunFailed | Unfit:
    """What a run raised, as what is to be raised instead."""
    if _out_of_memory(error):
        return RunFailed("OutOfMemory", _named(error))
    if _unusable(error):
        return Unfit(Exit.PROCESS_UNUSABLE, _named(error))
    return RunFailed("ModelFailed", _named(error))


def one_line(error: Exception) -> str:
    """The first useful line of what a load raised."""
    lines = [line.strip() for line in _message(error).splitlines() if line.strip()]
    return _bounded(lines[0], _MOST_CHARS_OF_A_LOAD) if lines else type(error).__name__


def passes(error: Exception) -> bool:
    """Whether what a load raised says nothing against the files, so that a later load may succeed."""
    if isinstance(error, OSError):
        return error.errno not in _LASTING_ERRNOS
    if isinstance(error, _WRAPS_CUDA):
        return _DEVICE_OR_STORAGE.search(str(error.message)) is not None
    return isinstance(error, _PASSING)


def _out_of_memory(error: Exception) -> bool:
    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return True
    return isinstance(error, _WRAPS_CUDA) and _ALLOCATION.search(str(error.message)) is not None


def _unusable(error: Exception) -> bool:
    pattern = _UNUSABLE.get(type(error))
    message = error.message if isinstance(error, tf.errors.OpError) else error
    return pattern is not None and pattern.search(str(message)) is not None


def _named(error: Exception) -> str:
    kind = "" if isinstance(error, UnicodeDecodeError) else f"{type(error).__name__}: "
    return _bounded(" ".join(f"{kind}{_message(error)}".split()), _MOST_CHARS)


def _message(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):  # in place of TensorFlow's own error, whose text quotes what was fed
        message = error.object.decode(errors="backslashreplace")
    elif isinstance(error, tf.errors.OpError):
        message = str(error.message)
    else:
        return str(error)
    useful = _PREAMBLE.sub("", message)
    useful = _TRACE.split("\n" + useful)[0].strip() or message
    text = _NODE.sub("", _CALL_PATH.sub("", useful)).strip()
    named = [node for node in _NODE.findall(message) if not node.startswith("__")]
    if named and named[0] not in text:
        text = f"{text} [at op {named[0]}]"
    return text


def _bounded(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"

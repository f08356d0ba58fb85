"""What TensorFlow raises while it loads or runs a model, as an error of `workers.backend` in one line."""

import re

from pool.wire import Exit
from workers.backend import RunFailed, Unfit
from workers.tf.library import tf

_MOST_CHARS = 1000
_NO_MEMORY = (tf.errors.ResourceExhaustedError, MemoryError)
_ALLOCATION = re.compile(
    r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|(CUDNN|CUBLAS|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED"
    r"|CUFFT_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_(HOST|DEVICE)_ALLOCATION_FAILED"
)
# Only these two wrap a failed call of CUDA's libraries; anywhere else the words would be a model's own.
_WRAPS_CUDA = (tf.errors.InternalError, tf.errors.UnknownError)
# After one of these every later call gives the same error, says CUDA: "the process must be terminated and relaunched".
_STICKY = re.compile(
    # The driver's names are CUDA_ERROR_ILLEGAL_ADDRESS, those of the runtime cudaErrorIllegalAddress.
    r"(?i:cuda_?error_?(illegal_?(address|instruction)|launch_?(failed|failure|timeout)|assert|hardware_?stack_?error"
    r"|misaligned_?address|invalid_?(address_?space|pc)|tensor_?memory_?leak|external_?device|contained"
    r"|(ecc|nvlink)_?uncorrectable|context_?is_?destroyed|deinitialized|cudart_?unloading)\b)"
    # Their words, where TensorFlow passes on no name.
    r"|an illegal memory access was encountered|unspecified launch failure|device-side assert triggered"
    r"|an illegal instruction was encountered|uncorrectable ECC error|GPU sync failed"
    # A library that has no handle: whatever keeps it from one, a new process is what cures it.
    r"|CU(DNN|BLAS|SOLVER|SPARSE)_STATUS_(NOT_INITIALIZED|INTERNAL_ERROR)\b"
    r"|cuDNN failed to initialize|No (DNN|BLAS)( support)? (in|for) stream|without (DNN|BLAS) support"
    r"|Failed to initialize BLAS support|[Ff]ailed to create cu\w+ handle|[Cc]ould not create cu\w+ handle"
)
# TensorFlow's own words, in errors of these kinds. Others quote what was fed.
_KINDS = (*_WRAPS_CUDA, tf.errors.FailedPreconditionError, tf.errors.UnimplementedError, tf.errors.CancelledError)
_UNUSABLE = re.compile(r"DNN library (initialization failed|is not found)|Session has been closed|a closed Session")
# What may be otherwise a moment later, whatever the text: the device's memory is still held by the process before.
_PASSING = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError, *_NO_MEMORY)
_DEVICE_OR_STORAGE = re.compile(
    r"cuda|cudnn|cublas|cusolver|cusparse|cufft|\bGPU\b|Input/output error|Stale file handle", re.IGNORECASE
)
_LASTING = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
_NODE = re.compile(r"\{\{(?:node|function_node) ([^}]*)\}\}")
# What follows is where the model's author built the graph, not what went wrong.
_TRACE = re.compile(r"\n\s*(Original stack trace|Errors may have originated|Function call stack|Detected at node)")
# What `Session.run`, unlike a callable, puts before the message: where in Python the op was made.
_PREAMBLE = re.compile(r"\AGraph execution error:\s+(Detected at node .*?\nNode: '[^\n]*\n)?", re.DOTALL)
# The way through the calls of functions down to the op that the first line names already.
_CALL_PATH = re.compile(r"\n\s*\[\[.*\]\]\s*(?=\n|$)")


def of_a_run(error: Exception) -> RunFailed | Unfit:
    """What a run raised, as what is to be raised instead."""
    raw = str(getattr(error, "message", error))
    wraps_cuda = isinstance(error, _WRAPS_CUDA)
    text = one_line(error)
    if not isinstance(error, UnicodeDecodeError):
        text = f"{type(error).__name__}: {text}"
    if isinstance(error, _NO_MEMORY) or (wraps_cuda and _ALLOCATION.search(raw)):
        return RunFailed("OutOfMemory", text)
    if (wraps_cuda and _STICKY.search(raw)) or (isinstance(error, (*_KINDS, RuntimeError)) and _UNUSABLE.search(raw)):
        return Unfit(Exit.PROCESS_UNUSABLE, text)
    return RunFailed("ModelFailed", text)


def passes(error: Exception) -> bool:
    """Whether what a load raised says nothing against the files, so that a later load may succeed."""
    if isinstance(error, OSError):  # without a number: a library's own word for a file that it cannot read
        return error.errno is not None and not isinstance(error, _LASTING)
    if isinstance(error, _WRAPS_CUDA):
        return _DEVICE_OR_STORAGE.search(str(error.message)) is not None
    return isinstance(error, _PASSING)


def one_line(error: Exception) -> str:
    """What is useful of its message."""
    text = " ".join(_message(error).split()) or type(error).__name__
    return text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"


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
    return f"{text} [at op {named[0]}]" if named and named[0] not in text else text

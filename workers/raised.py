"""What an exception says of itself, for whoever asked for what raised it."""

import logging

from pool.wire.codec import BadFrame
from pool.wire.faults import Fault
from pool.wire.signatures import Refused

__all__ = ["fault_of", "text_of"]

log = logging.getLogger("workers.runner")

TEXT_CHARS = 2000


def text_of(error: BaseException) -> str:
    """Never raises, though a class of a model's own may do so when it is asked for its text."""
    try:
        return str(error)
    except Exception:
        return f"<a {type(error).__name__} without a readable text>"


def fault_of(model: str, error: Exception) -> tuple[Fault, str]:
    """What a part of a batch is told of what was raised for it, or by the run that it shared."""
    text = text_of(error)[:TEXT_CHARS]
    match error:
        case Refused():
            return error.fault, text
        case BadFrame():
            return Fault.INVALID_INPUT, f"the job cannot be read: {text}"
        case MemoryError():
            return Fault.OUT_OF_MEMORY, f"in the worker: {text}"
    # A fault of ours: the job hears of it, the lane goes on.
    log.error("a batch of model %s failed in the worker", model, exc_info=error)
    return Fault.MODEL_FAILED, f"in the worker: {type(error).__name__}: {text}"

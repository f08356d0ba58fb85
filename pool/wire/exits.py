"""The exit statuses of a worker: what it wants the pool to do next."""

from enum import IntEnum


class Exit(IntEnum):
    """A status that is not listed here, or a signal, is a crash: the slot starts its next worker after a back-off."""

    STOPPED = 0  # the pool told it to stop
    CRASHED = 1  # Python's own, for an uncaught exception
    POOL_GONE = 70  # the link ended: nobody is there to read this
    WRONG_ENVIRONMENT = 71  # started by hand, or with another environment than the pool meant
    WRONG_DEVICES = 72  # TensorFlow sees other devices than the slot was promised
    BACKEND_MISSING = 73  # TensorFlow is not installed, or does not import
    MODEL_CANNOT_LOAD = 74  # none of its models can be loaded: the files are not models, or not for these settings
    LOAD_FAILED = 75  # a load failed for want of what may be there next time: memory, the device, the storage
    PROCESS_UNUSABLE = 76  # an error that no later run in this process survives, such as a broken CUDA context
    OTHER_RELEASE = 77  # its files are not those that the pool was started from
    CONNECTION_LOST = 78  # a lane's ZeroMQ socket takes no more, or the pool answered GONE


FINAL = frozenset({Exit.WRONG_ENVIRONMENT, Exit.WRONG_DEVICES, Exit.BACKEND_MISSING, Exit.MODEL_CANNOT_LOAD})
"""The next worker would fail in the same way, so the slot goes FATAL at once."""

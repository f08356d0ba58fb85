"""The exit statuses of a worker: what it wants the pool to do next.

OTHER_RELEASE has the same number in every release: the pool that reads it is not of the worker's.
"""

from enum import IntEnum

__all__ = ["Exit"]


class Exit(IntEnum):
    """A status that is not listed, or a signal, is a crash: the slot is restarted within the limits of `[restart]`."""

    STOPPED = 0  # it was told to stop
    CRASHED = 1  # an error of its own or a message that it does not understand; Python's for an uncaught exception
    POOL_GONE = 70  # the pool died or never answered; nobody is there to read this
    WRONG_ENVIRONMENT = 71  # started by hand, of another release, or with another environment than the pool meant
    WRONG_DEVICES = 72  # TensorFlow sees other devices than the slot was promised
    BACKEND_MISSING = 73  # TensorFlow is not installed, or does not import
    MODEL_CANNOT_LOAD = 74  # the files are not a model, or not one for these settings
    LOAD_FAILED = 75  # a load failed for want of what may be there next time: memory, the device, the storage
    PROCESS_UNUSABLE = 76  # an error that no later run in this process survives, such as a broken CUDA context
    OTHER_RELEASE = 77  # its files are not those that the pool was started from: they were replaced while it runs
    DEVICE_TAKEN = 78  # a former worker's memory is still on its GPU after `device_free_timeout`
    DEVICE_LOST = 79  # NVML says that its GPU is gone
    NO_ROOM = 80  # its GPU has no room for it beside the worker that it was to follow

    @property
    def restartable(self) -> bool:
        """False: the same worker would fail in the same way, so the slot goes FATAL at once.

        One of OTHER_RELEASE would, too. But the files may be put back, so the slot waits and tries now and then.
        """
        return self in (
            Exit.STOPPED,
            Exit.CRASHED,
            Exit.POOL_GONE,
            Exit.LOAD_FAILED,
            Exit.PROCESS_UNUSABLE,
            Exit.OTHER_RELEASE,
            Exit.DEVICE_TAKEN,
            Exit.NO_ROOM,
        )

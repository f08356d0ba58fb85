"""Everything that a call of this package can raise, and for whom it is.

InvalidInput, ModelNotFound and NotAllowed are the caller's, ModelFailed and OutOfMemory the model's, DeadlineExceeded
and Overloaded the load's, WorkerLost and Quarantined those of a worker that died, PoolUnreachable and Incompatible the
pool's, InvalidConfig the configuration's.
"""


class PoolError(Exception):
    """Base of all errors of this package. `retryable`: the same call may succeed later."""

    retryable = False


class InvalidInput(PoolError, ValueError):
    """An input, output or signature that the model does not have, or a dtype or shape that it does not take."""


class ModelNotFound(PoolError, LookupError):
    """The pool serves no model of this name."""


class NotAllowed(PoolError, PermissionError):
    """Only the pool's own user and root may ask the pool for this."""


class ModelFailed(PoolError):
    """An operation of the model raised, or the model could not be loaded. The message is TensorFlow's."""


class OutOfMemory(ModelFailed):
    """The run did not fit into the device's memory, with no other job beside it in its batch."""


class DeadlineExceeded(PoolError, TimeoutError):
    """The job's timeout ended before its answer came. The job may still have run."""


class Overloaded(PoolError):
    """The pool's queue is at its bound in jobs or bytes. Nothing was queued."""

    retryable = True


class WorkerLost(PoolError):
    """The worker of a stateful model died. The job may have run, so it is not run again."""


class Quarantined(PoolError):
    """Each worker that ran the job died, the last one while it ran nothing else. The pool keeps the job's inputs."""


class PoolUnreachable(PoolError, ConnectionError):
    """No pool listens at the endpoint, or it went away before it answered."""

    retryable = True


class Incompatible(PoolError):
    """The pool speaks another version of the wire. The message names both releases."""


class InvalidConfig(PoolError, ValueError):
    """The configuration is refused. The message has a line for each mistake."""


_NAMED = {name: each for name, each in globals().items() if isinstance(each, type) and issubclass(each, PoolError)}


def from_wire(name: str, text: str) -> PoolError:
    """The exception for a failure that came over the wire."""
    return _NAMED.get(name, PoolError)(text)

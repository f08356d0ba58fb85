"""Everything that a call of this package can raise.

    PoolError
    ├── InvalidInput         the caller: an input, a signature or a fetch that the model does not have or take
    ├── InvalidState         the caller: the client is closed, or the call cannot be made here or now
    ├── NotAllowed           the caller: it has no right to this, or its key may not enter
    ├── ModelNotFound        the caller: no such model is served here
    ├── ModelFailed          the model: an operation of it raised
    │   └── OutOfMemory      the device: the run did not fit into its memory
    ├── DeadlineExceeded     nobody: the job's time was over before its answer came
    ├── Overloaded           the load: a bound of the pool's queue was reached          (retry helps)
    │   └── QuotaExceeded    the caller: a bound of its own [[client]] was reached          (retry helps)
    ├── WorkerLost           the worker: it, or the pool, died while it held the job    (retry helps, unless stateful)
    ├── Quarantined          the job: each worker that it was given to died with it alone
    ├── PoolUnreachable      the pool: not there, or gone                               (retry helps)
    └── Incompatible         the installation: another protocol version
        └── InvalidConfig    the configuration file

Each class says who is to blame (`blame`) and each instance whether the same call may succeed later (`retryable`).
Six are errors of Python, too: `ValueError`, `RuntimeError`, `PermissionError`, `LookupError`, `TimeoutError` and
`ConnectionError`. None is a bare `PoolError`.
"""

from pool.wire.faults import Fault

__all__ = [
    "DeadlineExceeded",
    "Incompatible",
    "InvalidConfig",
    "InvalidInput",
    "InvalidState",
    "ModelFailed",
    "ModelNotFound",
    "NotAllowed",
    "OutOfMemory",
    "Overloaded",
    "PoolError",
    "PoolUnreachable",
    "Quarantined",
    "QuotaExceeded",
    "WorkerLost",
    "from_fault",
]


class PoolError(Exception):
    """Base of all errors of this package."""

    blame = "the pool"
    retryable = False


class InvalidInput(PoolError, ValueError):
    """An input, signature or output that the model does not have, or a dtype or shape that it does not take."""

    blame = "the caller"


class InvalidState(PoolError, RuntimeError):
    """The call cannot be made here or now: the client is closed, or a wait in this thread would never end.

    Or the pool cannot do it as things are, such as restart a slot while the pool stops.
    """

    blame = "the caller"


class NotAllowed(PoolError, PermissionError):
    """The client has no right to this, and the message names the right; or its key may not enter."""

    blame = "the caller"


class ModelNotFound(PoolError, LookupError):
    """No model of this name is served; the message gives the nearest names."""

    blame = "the caller"


class ModelFailed(PoolError):
    """An operation of the model raised; the message is TensorFlow's. Never re-run by the pool."""

    blame = "the model"


class OutOfMemory(ModelFailed):
    """The run did not fit into the device's memory."""

    blame = "the device"


class DeadlineExceeded(PoolError, TimeoutError):
    """The job's timeout ended before its answer came. The job may still have run."""

    blame = "nobody"


class Overloaded(PoolError):
    """The queue is at its bound in jobs or bytes; nothing was queued.

    `retry_after`: in how many seconds the pool expects to have room, None where it does not know. A job submitted with
    `block=True` waits for room by itself, and gets this only when its time is over.
    """

    blame = "the load"
    retryable = True

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        if retry_after is not None:
            text += f"; try again in {float(f'{retry_after:.2g}'):g} s"  # 2g alone makes 6e+02 of 600
        super().__init__(text)
        self.retry_after = retry_after


class QuotaExceeded(Overloaded):
    """The client has as many jobs or bytes in the pool, or sends as many jobs a second, as its [[client]] allows.

    The pool may have room for others.
    """

    blame = "the caller"


class WorkerLost(PoolError):
    """The workers that ran the job died, or the pools that held it, or no worker is left to run it.

    `retryable` is False for a job of a stateful model that may have started.
    """

    blame = "the worker"
    retryable = True


class Quarantined(PoolError):
    """The job killed every worker that it was given to, the last one while nothing else ran there.

    It is not tried again. The pool keeps its inputs in its state folder, for `pool submit --replay`.
    """

    blame = "the job"


class PoolUnreachable(PoolError, ConnectionError):
    """No pool answers at the endpoint, or it failed, or went away before it answered and did not return in time."""

    blame = "the pool"
    retryable = True


class Incompatible(PoolError):
    """The other side speaks another version of the protocol."""

    blame = "the installation"


class InvalidConfig(Incompatible, ValueError):
    """The configuration is refused; the message has a line for each mistake."""

    blame = "the configuration"


_BY_FAULT: dict[Fault, type[PoolError]] = {
    Fault.INVALID_INPUT: InvalidInput,
    Fault.MODEL_NOT_FOUND: ModelNotFound,
    Fault.MODEL_FAILED: ModelFailed,
    Fault.OUT_OF_MEMORY: OutOfMemory,
    Fault.DEADLINE_EXCEEDED: DeadlineExceeded,
    Fault.WORKER_LOST: WorkerLost,
    Fault.QUARANTINED: Quarantined,
    Fault.STATEFUL_WORKER_LOST: WorkerLost,
    Fault.POOL_STOPPING: PoolUnreachable,
    Fault.POOL_FAILED: PoolUnreachable,
    Fault.NOT_ALLOWED: NotAllowed,
    Fault.NOT_UNDERSTOOD: Incompatible,
    Fault.INVALID_STATE: InvalidState,
    Fault.INVALID_CONFIG: InvalidConfig,
}


def from_fault(fault: Fault, text: str, retry_after_s: float | None = None) -> PoolError:
    """The exception for a fault that came over the wire."""
    if fault in (Fault.OVERLOADED, Fault.QUOTA_EXCEEDED):
        return (Overloaded if fault is Fault.OVERLOADED else QuotaExceeded)(text, retry_after_s)
    error = _BY_FAULT[fault](text)
    if fault is Fault.STATEFUL_WORKER_LOST:
        error.retryable = False
    return error

"""Why a job failed, or a question was refused, as it travels; `pool.errors` has the exception for each."""

from enum import Enum


class Fault(Enum):
    INVALID_INPUT = "invalid-input"
    MODEL_NOT_FOUND = "model-not-found"
    MODEL_FAILED = "model-failed"
    OUT_OF_MEMORY = "out-of-memory"
    DEADLINE_EXCEEDED = "deadline-exceeded"
    OVERLOADED = "overloaded"
    QUOTA_EXCEEDED = "quota-exceeded"
    WORKER_LOST = "worker-lost"
    QUARANTINED = "quarantined"
    STATEFUL_WORKER_LOST = "stateful-worker-lost"
    POOL_STOPPING = "pool-stopping"
    POOL_FAILED = "pool-failed"
    NOT_ALLOWED = "not-allowed"
    NOT_UNDERSTOOD = "not-understood"
    INVALID_STATE = "invalid-state"
    INVALID_CONFIG = "invalid-config"

"""What each cause of failure means for a job: the one place where that is decided.

what its lane says                          after a run that it shared              after a run of its own
ModelFailed, OutOfMemory, InvalidInput      again, with half of those that failed   it ends
Stale: a block that may not be cut          it ends, and its client asks anew       it ends
ModelNotFound: it asks for another version  it ends                                 it ends

its worker died or hung                     again, while its worker runs nothing else: a suspect
that happened `max_attempts` times          it ends: Quarantined
its model is stateful                       it may have changed the state, so it ends: StatefulWorkerLost
"""

HALVED = frozenset({"ModelFailed", "OutOfMemory", "InvalidInput"})
OUTCOMES = HALVED | {"Stale", "ModelNotFound"}
"""What a lane may say of a job."""


class Lie(Exception):
    """A peer says what cannot be true. Nothing was changed. It costs a worker its life and a client its link."""


class Refused(Exception):
    """A job that is not taken. Nothing was changed; the client is told `error` and `text`."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(f"{error}: {text}")
        self.error, self.text = error, text

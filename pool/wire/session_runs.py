"""Runs of a model's graph by the names of its tensors and operations, as `tf.Session.run` makes them.

They travel as jobs of signatures that no model has: inputs are named by tensors, outputs by tensors and operations, and
an operation is not among the answer's arrays. What is not a tensor of the graph has a name that begins with a colon,
which none of TensorFlow's does.

    RUN          the model's variables; nothing is run, and the answer is `WRITES`, where that would change them
    WRITING_RUN  the same, where it may
    REMOTE_RUN   what the pool makes of a RUN of who may not write: refused where it would, or would touch files
    PRIVATE_RUN  the variables of the private session `SESSION`
    OPEN         a private session, whose name is the answer's `SESSION`; for TOUCH, CLOSE and PRIVATE_RUN to name
    TOUCH        somebody will want it again
    CLOSE        nobody will
"""

__all__ = [
    "CLOSE",
    "KEEPS_STATE",
    "OPEN",
    "PRIVATE_RUN",
    "REMOTE_RUN",
    "RUN",
    "RUN_METADATA",
    "SESSION",
    "SESSION_SIGNATURES",
    "SESSION_WRITES",
    "TOUCH",
    "TRACE_LEVEL",
    "WRITES",
    "WRITING",
    "WRITING_RUN",
]

RUN = "Session.run"
WRITING_RUN = "Session.run, which writes"
REMOTE_RUN = "Session.run, read-only"
PRIVATE_RUN = "Session.run, private"
OPEN = "Session.open, private"
TOUCH = "Session.touch, private"
CLOSE = "Session.close, private"

SESSION_SIGNATURES = frozenset((RUN, WRITING_RUN, REMOTE_RUN, PRIVATE_RUN, OPEN, TOUCH, CLOSE))
KEEPS_STATE = frozenset((WRITING_RUN, PRIVATE_RUN))
"""A run that may have started is never repeated, whatever model it is of."""
WRITING = frozenset((WRITING_RUN, PRIVATE_RUN, OPEN))
"""Most graphs of TensorFlow 1 can write a checkpoint to any path that they are fed: that takes a right."""
SESSION_WRITES = "a session that runs graphs which write state or read files"

SESSION = ":session"
TRACE_LEVEL = ":trace_level"  # an input: TensorFlow's number of a `RunOptions.TraceLevel`
RUN_METADATA = ":run_metadata"  # an output, where one was traced: a serialized `RunMetadata`
WRITES = ":writes"

"""A call of `tf.Session.run`: what travels of it is understood here, what it names the model has to find."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pool.wire.calls import TensorHeader
from pool.wire.codec import BadFrame
from pool.wire.session_runs import SESSION, TRACE_LEVEL
from pool.wire.signatures import Refused, TensorSpec
from pool.wire.tensors import DTYPES, Array
from workers.inputs import Input
from workers.signatures import Invocation

__all__ = ["SessionCall", "resolve_session_run", "session_call"]


@dataclass(frozen=True, slots=True)
class SessionCall:
    """`feeds`: by the names of tensors, of any dtype; those in `weak` were Python numbers, or lists of them.

    `fetches`: tensors and operations, each once. `may_write`: it may change the model's variables. `trace_level`:
    above 0, TensorFlow is to say where the time goes. `remote`: it came over TCP.
    """

    feeds: Mapping[str, Array]
    weak: frozenset[str]
    fetches: tuple[str, ...]
    may_write: bool
    trace_level: int = 0
    remote: bool = False


def resolve_session_run(signature: str, outputs: Sequence[str] | None, tensors: Sequence[TensorHeader]) -> Invocation:
    """The inputs as they come, since what dtype and shape they should have is the graph's to say. Raises `BadFrame`."""
    inputs: dict[str, Input] = {}
    for header in tensors:
        if header.dtype not in DTYPES or any(axis < 0 for axis in header.shape):
            raise BadFrame(f"no tensor {header.dtype!r:.40} {header.shape!r:.80}")
        if header.name in inputs:
            raise BadFrame(f"tensor {header.name!r:.80} is fed twice")
        where = f"feed {header.name!r:.200}"
        inputs[header.name] = Input(header.name, header, TensorSpec(header.dtype, header.shape), where)
    return Invocation(signature, tuple(dict.fromkeys(outputs or ())), tuple(inputs.values()))


def session_call(
    invocation: Invocation, feeds: Mapping[str, Array], may_write: bool, remote: bool = False
) -> SessionCall:
    """Raises `Refused`."""
    return SessionCall(
        {name: array for name, array in feeds.items() if name not in (SESSION, TRACE_LEVEL)},
        frozenset(each.name for each in invocation.inputs if each.header.weak),
        invocation.outputs,
        may_write,
        _trace_level(feeds),
        remote,
    )


def _trace_level(feeds: Mapping[str, Array]) -> int:
    given = feeds.get(TRACE_LEVEL)
    if given is None:
        return 0
    if given.ndim or given.dtype.kind not in "iu" or not 0 <= int(given) <= 3:
        raise Refused("the trace level is a number from 0 to 3")
    return int(given)

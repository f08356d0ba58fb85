"""The signature of a graph that declares none: by the tensors that the configuration names, else guessed."""

import difflib
import logging
from collections.abc import Sequence
from typing import Any

from pool.wire.signatures import DEFAULT_SIGNATURE
from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad
from workers.tf.guess import guessed_inputs, guessed_outputs
from workers.tf.library import SignatureDef, TensorInfo
from workers.tf.reachable import ReachableOps

__all__ = ["interface"]

logger = logging.getLogger("workers.tf")

_MOST_SAID = 12


def interface(settings: ModelSettings, graph: Any, graph_def: Any) -> dict[str, Any]:
    """One `SignatureDef`, "serving_default", whose inputs and outputs are called as their nodes are.

    What was guessed of it is said in the log. Raises `CannotLoad`.
    """
    reachable = ReachableOps(graph_def)
    asked = [_tensor(graph, name, "inputs") for name in settings.inputs]
    inputs = asked or guessed_inputs(graph)
    outputs = [_tensor(graph, name, "outputs") for name in settings.outputs]
    guessed = [] if asked else ["inputs"]
    if not outputs:
        outputs = guessed_outputs(graph, inputs, reachable)
        guessed.append("outputs")
        if not outputs:
            raise CannotLoad("its outputs cannot be guessed: set `outputs` in [[model]] to names of its tensors")
    if not asked:
        needed = reachable.nodes_of(tensor.name for tensor in outputs)
        inputs = [tensor for tensor in inputs if tensor.op.name in needed]
    if guessed:
        took = f"{settings.name}: guessed {' and '.join(guessed)} of the graph: takes {_listed(inputs)}"
        logger.info("model %s, gives %s; `inputs` and `outputs` in [[model]] say otherwise", took, _listed(outputs))
    signature = SignatureDef(
        inputs={_name(tensor): _info(tensor) for tensor in inputs},
        outputs={_name(tensor): _info(tensor) for tensor in outputs},
    )
    return {DEFAULT_SIGNATURE: signature}


def _tensor(graph: Any, name: str, key: str) -> Any:
    try:
        found = graph.as_graph_element(name, allow_tensor=True, allow_operation=True)
    except (KeyError, ValueError, TypeError):
        raise CannotLoad(
            f"`{key}` names {name!r:.80}, which is not a tensor of its graph; {_near(graph, name)}"
        ) from None
    if ":" in name:
        return found
    if not found.outputs:
        raise CannotLoad(f"`{key}` names {name!r}, a {found.type} without an output tensor")
    return found.outputs[0]


def _near(graph: Any, name: str) -> str:
    ops = [str(op.name) for op in graph.get_operations()]
    near = difflib.get_close_matches(name.partition(":")[0], ops, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"its placeholders are {_listed(guessed_inputs(graph))}"


def _name(tensor: Any) -> str:
    """The node's; with the number of its output, unless that is the first."""
    return str(tensor.name).removesuffix(":0")


def _info(tensor: Any) -> Any:
    dtype = tensor.dtype.base_dtype.as_datatype_enum
    return TensorInfo(name=tensor.name, dtype=dtype, tensor_shape=tensor.shape.as_proto())


def _listed(tensors: Sequence[Any]) -> str:
    names = [repr(_name(tensor)) for tensor in tensors]
    more = f" and {len(names) - _MOST_SAID} more" if len(names) > _MOST_SAID else ""
    return (", ".join(names[:_MOST_SAID]) or "nothing") + more

"""What of a model ran where, by a traced run: TensorFlow may do otherwise than a graph says.

A function that was inlined leaves its nodes behind the name of its call ("call/node"), behind those of all calls on the
way where they are nested; those of a branch or a loop behind a number besides ("while/body/_26/node"). The nodes of one
that was not inlined have their own names alone.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pool.wire.tensors import Array
from workers.backend import Traced
from workers.tf.devices import short
from workers.tf.graph import called_by, scopes
from workers.tf.library import tf

MOST_NAMES = 20


def trace(session: Any, graph_def: Any, feeds: Mapping[str, Array], fetches: Sequence[str]) -> list[Traced]:
    """Runs these tensors twice, and tells of the second run, which makes no kernels and tunes none.

    `graph_def`: the Session's graph. Raises what TensorFlow raises.
    """
    # The executors note each node. Traces of hardware attach CUPTI besides, of which a process has one.
    options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.SOFTWARE_TRACE)
    metadata = tf.compat.v1.RunMetadata()
    session.run(fetches, feeds)
    session.run(fetches, feeds, options=options, run_metadata=metadata)
    functions = {function.signature.name for function in graph_def.library.function}
    names = {node.name for _, nodes in scopes(graph_def) for node in nodes if not called_by(node, functions)}
    traced = []
    for device in metadata.step_stats.dev_stats:
        seconds: dict[str, float] = {}
        for node in device.node_stats if short(device.device) else ():
            if name := _name(node.node_name, names):
                took = (node.op_end_rel_nanos - node.op_start_rel_nanos) / 1e9
                seconds[name] = seconds.get(name, 0.0) + took
        if seconds:
            largest = sorted(seconds, key=lambda name: -seconds[name])
            traced.append(Traced(short(device.device), len(seconds), sum(seconds.values()), largest[:MOST_NAMES]))
    return traced


def _name(traced: str, names: Collection[str]) -> str:
    """The longest end of a traced name that is a node's name; "" for what TensorFlow has added."""
    parts = traced.split("/")
    return next((name for at in range(len(parts)) if (name := "/".join(parts[at:])) in names), "")

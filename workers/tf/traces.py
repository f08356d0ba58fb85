"""What of a model ran where: by traced runs, for TensorFlow may do otherwise than a graph says."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pool.wire.faults import Fault
from pool.wire.signatures import Refused
from pool.wire.tensors import Array
from workers.tf.colocation import Node
from workers.tf.devices import short
from workers.tf.errors import of_a_run, one_line
from workers.tf.graph_names import GraphNames
from workers.tf.layer_devices import Placed
from workers.tf.library import tf
from workers.tf.session import devices_of

__all__ = ["OneRun", "Traces", "not_kept"]

_MOST_NAMED = 5
_tracing = threading.Lock()  # a traced run is slow, and nobody is in a hurry for a second one


@dataclass(frozen=True, slots=True)
class OneRun:
    """A run of a signature. `feeds`: by tensor."""

    feeds: Mapping[str, Array]
    fetches: Sequence[str]


class Traces:
    """Of one model. Safe from several threads."""

    def __init__(self, session: Any, placed: Placed) -> None:
        self._session = session
        self._placed = placed

    @property
    def has_rules(self) -> bool:
        return bool(self._placed.rules)

    def report(self, runs: Mapping[str, OneRun | str]) -> dict[str, Any]:
        """Runs each signature once and says what ran where. `runs`: by signature; a text says why one cannot be run.

        See `workers.backend.Model.placement`. The nodes are in the order in which they began to run; what TensorFlow
        has added is left out.

        Raises `ProcessUnusable`, and `Refused` for a graph that TensorFlow does not give back, as of more than 2 GiB.
        """
        with _tracing:
            names = GraphNames(self._graph_def())
            signatures: dict[str, Any] = {}
            ran: dict[Node, set[str]] = {}
            expected: set[Node] = set()
            for signature, run in runs.items():
                if isinstance(run, str):
                    signatures[signature] = {"nodes": [], "why": run}
                    continue
                try:
                    found = self._run(run, names)
                except Refused as error:
                    signatures[signature] = {"nodes": [], "why": str(error)}
                    continue
                expected.update(names.expected(run.fetches))
                signatures[signature] = {"nodes": [self._row(node, on, names) for node, on in found], "why": None}
                for node, on in found:
                    ran.setdefault(node, set()).add(on)
        return {
            "devices": str(devices_of(self._session)).split(", "),
            "signatures": signatures,
            "rules": [self._rule(number, ran, expected) for number in range(len(self._placed.rules))],
        }

    def _graph_def(self) -> Any:
        try:
            return self._session.graph.as_graph_def()
        except Exception as error:
            raise Refused(f"its graph cannot be read back: {one_line(error)}", Fault.MODEL_FAILED) from error

    def _run(self, run: OneRun, names: GraphNames) -> list[tuple[Node, str]]:
        # The executors note each node already; HARDWARE and FULL traces attach CUPTI besides, of which there is one.
        options = tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.SOFTWARE_TRACE)
        metadata = tf.compat.v1.RunMetadata()
        try:
            self._session.run(list(run.fetches), dict(run.feeds), options=options, run_metadata=metadata)
        except Exception as error:  # of the model's own making
            raise of_a_run(error) from error
        began: dict[tuple[Node, str], int] = {}
        called = names.called(run.fetches)
        for device in metadata.step_stats.dev_stats:
            on = short(device.device)
            for traced in device.node_stats if on is not None else ():
                for node in names.nodes(traced.node_name, called):
                    began.setdefault((node, on or ""), traced.all_start_micros)
        return sorted(began, key=lambda each: began[each])

    def _row(self, node: Node, on: str, names: GraphNames) -> dict[str, Any]:
        scope, name = node
        return {
            "node": name,
            "function": scope,
            "op": names.op(node),
            "device": on,
            "rule": self._placed.moved.get(node),
        }

    def _rule(self, number: int, ran: Mapping[Node, set[str]], expected: set[Node]) -> dict[str, Any]:
        rule = self._placed.rules[number]
        mine = [node for node, mover in self._placed.moved.items() if mover == number]
        there = [node for node in mine if node in ran]
        elsewhere = [
            {"node": name, "device": on}
            for scope, name in there
            for on in sorted(ran[scope, name])
            if on != rule.device
        ]
        absent = sorted({name for scope, name in mine if (scope, name) in expected and (scope, name) not in ran})
        return {
            "layers": rule.layers,
            "device": rule.device,
            "matched": len(mine),
            "ran": len(there),
            "elsewhere": elsewhere,
            "absent": absent,
            "kept": None if not there and not absent else bool(there) and not elsewhere,
        }


def not_kept(report: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each rule that is not kept."""
    for rule in report["rules"]:
        if rule["kept"] is False:
            yield f"rule {rule['layers']!r} of layer_devices on {rule['device']} is not obeyed: {_how(rule)}"


def _how(rule: Mapping[str, Any]) -> str:
    if not rule["elsewhere"]:
        return f"none of its {rule['matched']} nodes ran; TensorFlow replaced them or left them out"
    named = [f"{each['node']!r} ran on {each['device']}" for each in rule["elsewhere"]]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return f"{', '.join(named[:_MOST_NAMED])}{more}, of {rule['ran']} nodes that ran"

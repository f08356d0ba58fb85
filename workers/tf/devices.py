"""Where the nodes of a model run: the device strings that its graph came with, then `layer_devices` of [[model]].

    graph ─ clear strings ─► rules, the first that matches ─► what shares a variable follows

A rule's pattern is a name of a layer or an op, with `*` for any characters ("/", too), `?` for one and `[ab]` for one
of these; case counts. It matches an op by its whole name, or by its beginning up to a "/": "encoder" matches
"encoder/dense/MatMul". Names in functions are those that they have there. A rule that matches a call, a branch or a
loop moves what runs in it as well, but for what another rule matches, and for variables and what reads them.

`layer_devices = "least-loaded"` spreads the variables by their bytes instead. What computes with one goes where it is,
so that a run moves activations between the devices, and not weights.

TensorFlow may do otherwise than a graph says, so `trace` tells of a run what ran where.
"""

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from math import prod
from typing import Any

from pool.wire.tensors import Array
from workers.backend import CannotLoad, Traced
from workers.tf.graph import called_by, scopes
from workers.tf.library import tf
from workers.tf.row_values import op_def

_ONE = re.compile(r"(?:.*/)?(?:device:)?(CPU|GPU):(\d+)", re.IGNORECASE)
_MOST_NAMED = 5
MOST_NAMES = 20
Node = tuple[str, str]
"""A scope (`workers.tf.graph.scopes`) and a name. An argument of a function counts as a node of it."""

LEAST_LOADED = "least-loaded"
LARGE_BYTES = 64 << 10  # what is smaller, such as a bias, stays where TensorFlow has it
_HOLDERS = ("VarHandleOp", "Variable", "VariableV2", "Const")

_RESOURCE = tf.resource.as_datatype_enum
_BESIDE = b"loc:@"
_UNSET = tf.compat.v1.AttrValue()  # no default is a resource


class Devices:
    """Those that a Session has. `str` of it names them as rules do: "/cpu:0, /gpu:0"."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = [*names]  # whole ones, such as "/job:localhost/replica:0/task:0/device:CPU:0"

    def has(self, wanted: str) -> bool:
        """Whether a device string, which may leave parts out, stands for one of them. False for what is none."""
        try:
            asked = tf.DeviceSpec.from_string(wanted)
        except (ValueError, TypeError):
            return False
        return any(each.make_merged_spec(asked) == each for each in map(tf.DeviceSpec.from_string, self._names))

    def group(self) -> list[str]:
        """The GPUs; without any, the CPUs."""
        names = [*filter(None, map(short, self._names))]
        return [name for name in names if name.startswith("/gpu")] or names

    def __str__(self) -> str:
        return ", ".join(filter(None, map(short, self._names)))


def short(name: str) -> str:
    """ "/gpu:0" of the whole name of a device; "" of anything else, such as a stream of one."""
    match = _ONE.fullmatch(name)
    return f"/{match[1].lower()}:{int(match[2])}" if match else ""


def place(graph_def: Any, settings: Mapping[str, Any], devices: Devices, is_soft: bool) -> list[str]:
    """Writes device strings into the graph, in place, and says what it cleared.

    A graph without rules and strings to clear stays as it is, to the byte. `is_soft`: TensorFlow may run a node
    elsewhere than its string says. Raises `CannotLoad` for a rule that matches no node or names a device that is not
    there, and, unless `is_soft`, for a string of the graph that does and is not to be cleared.
    """
    nodes = [node for _, each in scopes(graph_def) for node in each]
    notes = _cleared(nodes, settings["clear_devices"], devices)
    if rules := settings["layer_devices"]:
        colocation = Colocation(graph_def)
        is_ruled = rules != LEAST_LOADED
        device_of = _ruled(colocation, rules, devices) if is_ruled else _balanced(colocation, devices.group())
        for key, node in colocation.nodes.items():
            node.device = device_of.get(key, node.device)
            if "config_proto" in node.attr:  # a function that is not inlined is optimised as its call says
                config = tf.compat.v1.ConfigProto.FromString(node.attr["config_proto"].s)
                keep_from_remapper(config)
                node.attr["config_proto"].s = config.SerializeToString()
    # Of a function TensorFlow does not look whether its devices are there.
    missing = [] if is_soft else [node for node in nodes if node.device and not devices.has(node.device)]
    if missing:
        text = f"op {missing[0].name!r} must run on {missing[0].device!r}, but this worker has {devices} alone"
        raise CannotLoad(f"{text}, and allow_soft_placement is false: leave out clear_devices, or give a rule for it")
    return notes


def _cleared(nodes: Sequence[Any], which: bool | None, devices: Devices) -> list[str]:
    """TensorFlow's own `clear_devices` leaves functions, and a graph of TensorFlow 2 consists of them."""
    if which is False:
        return []
    counts = Counter(node.device for node in nodes if node.device)
    cleared = {device: count for device, count in counts.most_common() if which or not devices.has(device)}
    for node in nodes:
        if node.device in cleared:
            node.device = ""
    named = [f"{device!r:.100} of {count} ops" for device, count in [*cleared.items()][:_MOST_NAMED]]
    why = "clear_devices is true" if which else f"this worker has {devices}"
    return [f"device strings of its graph are cleared, as {why}: {', '.join(named)}"] if cleared else []


def _balanced(colocation: "Colocation", devices: Sequence[str]) -> dict[Node, str]:
    """The largest variables first, each where the fewest bytes are; a frozen graph's constants count as variables."""
    nodes, loads = colocation.nodes, dict.fromkeys(devices, 0)
    sets = [*colocation.sets()]
    sets += [[node] for node in nodes if nodes[node].op == "Const" and not node[0]]  # a function may have copies
    sized = [(sum(_weights(nodes[node]) for node in each), sorted(each)) for each in sets]
    gives: dict[Node, int] = {}
    found: dict[Node, str] = {}
    for nbytes, together in sorted(sized, key=lambda each: (-each[0], each[1])):
        if nbytes >= LARGE_BYTES:
            emptiest = min(devices, key=lambda device: loads[device])
            loads[emptiest] += nbytes
            found |= dict.fromkeys(together, emptiest)
            gives |= dict.fromkeys(together, nbytes)
    readers: dict[Node, str] = {}
    for key, node in nodes.items():
        if key not in found and not called_by(node, colocation.functions):
            given = [colocation.origin(key[0], text) for text in node.input if not text.startswith("^")]
            if large := [giver for giver in given if giver in gives]:
                readers[key] = found[max(large, key=lambda giver: gives[giver])]
    return found | readers


def _weights(node: Any) -> int:
    """Bytes of what holds numbers of floating point. Others stay: a GPU has no kernels for much of that."""
    if node.op not in _HOLDERS or not tf.as_dtype(node.attr["dtype"].type).base_dtype.is_floating:
        return 0
    shape = node.attr["value"].tensor.tensor_shape if node.op == "Const" else node.attr["shape"].shape
    sizes = [max(axis.size, 0) for axis in shape.dim]
    return 0 if shape.unknown_rank else prod(sizes) * tf.as_dtype(node.attr["dtype"].type).size


def keep_from_remapper(config: Any) -> None:
    """It fuses nodes of two devices on one of them."""
    rewriting = config.graph_options.rewrite_options
    rewriting.remapping = rewriting.OFF


def _ruled(colocation: "Colocation", rules: Mapping[str, str], devices: Devices) -> dict[Node, str]:
    """By the first rule that matches a node, or one that runs with it."""
    names = {name for _, name in colocation.nodes}
    rule_of: dict[str, tuple[int, str]] = {}
    for number, (pattern, device) in enumerate(rules.items()):
        if not devices.has(device):
            raise CannotLoad(f"layer_devices: this worker has no {device} for {pattern!r}; it has {devices}")
        matching = re.compile(f"{translate(pattern)}|{translate(pattern + '/*')}").match
        if not (matched := [*filter(matching, names)]):
            text = f"layer_devices: {pattern!r} matches no op or layer of the graph"
            raise CannotLoad(f"{text}; {_near(pattern, names)}")
        rule_of = dict.fromkeys(matched, (number, device)) | rule_of
    found = {node: rule_of[node[1]] for node in colocation.nodes if node[1] in rule_of}
    for together in colocation.sets():
        if ruled := [found[node] for node in together if node in found]:
            found.update(dict.fromkeys(together, min(ruled)))
    return {node: device for node, (_, device) in found.items()}


def _near(pattern: str, names: Iterable[str]) -> str:
    shortest = sorted(names, key=lambda name: (len(name), name))[:5000]
    near = [name for name in shortest if pattern.strip("*/").lower() in name.lower()][:3]
    near = near or difflib.get_close_matches(pattern, shortest, n=3, cutoff=0.4) or shortest[:3]
    return f"the whole name must match, such as {', '.join(map(repr, near))}"


class Colocation:
    """Which nodes run on one device, because they use the same variable, table or other resource.

    TensorFlow runs what takes a resource, or a reference to a variable, where that is; and what names another node in
    its `_class` attribute beside that one. A resource goes from the graph into functions and on into theirs.
    """

    def __init__(self, graph_def: Any) -> None:
        self.functions = {function.signature.name: function for function in graph_def.library.function}
        self.nodes = {(scope, node.name): node for scope, nodes in scopes(graph_def) for node in nodes}
        self._together: dict[Node, list[Node]] = {}  # the set that a node is in; a set is one list
        for (scope, _), node in self.nodes.items():
            self._join_node(scope, node)

    def sets(self) -> Iterator[list[Node]]:
        """Each set of nodes that run together. What is in none runs wherever it is put."""
        for together in {id(each): each for each in self._together.values()}.values():
            yield [node for node in together if node in self.nodes]

    def origin(self, scope: str, text: str) -> Node:
        """The node whose tensor an input is, looked at through what passes it on."""
        node = (scope, text.split(":")[0])
        while node in self.nodes and self.nodes[node].op == "Identity":
            node = (scope, self.nodes[node].input[0].split(":")[0])
        return node

    def _join_node(self, scope: str, node: Any) -> None:
        for beside in node.attr.get("_class", _UNSET).list.s:
            if beside.startswith(_BESIDE):
                self._join((scope, node.name), (scope, beside.removeprefix(_BESIDE).decode(errors="replace")))
        if shared := node.attr.get("shared_name", _UNSET).s:  # another handle of one resource
            self._join((scope, node.name), (node.op, f"shared {node.attr['container'].s!r} {shared!r}"))
        called = called_by(node, self.functions)
        definition = self.functions[node.op].signature if node.op in self.functions else op_def(node.op)
        inputs = [(scope, text.split(":")[0]) for text in node.input if not text.startswith("^")]
        for at, (source, follows) in enumerate(zip(inputs, _followed(definition, node), strict=False)):
            for name, first in called:
                arguments = self.functions[name].signature.input_arg
                if follows and 0 <= at - first < len(arguments):
                    self._join(source, (name, arguments[at - first].name))
            # What else names functions, such as a dataset, does not run them on its own device.
            if follows and not called and not any(value.HasField("func") for value in node.attr.values()):
                self._join(source, (scope, node.name))

    def _join(self, one: Node, other: Node) -> None:
        few, many = sorted((self._together.setdefault(node, [node]) for node in (one, other)), key=len)
        if few is not many:
            many += few
            self._together.update(dict.fromkeys(few, many))


def _followed(definition: Any, node: Any) -> Iterator[bool]:
    """Of each data input, whether it is a resource or a reference."""
    for argument in definition.input_arg if definition else ():
        if argument.type_list_attr:
            types = node.attr.get(argument.type_list_attr, _UNSET).list.type
        else:
            count = node.attr.get(argument.number_attr, _UNSET).i if argument.number_attr else 1
            types = [argument.type or node.attr.get(argument.type_attr, _UNSET).type] * count
        yield from (argument.is_ref or each == _RESOURCE for each in types)


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
        seconds: dict[str, float] = defaultdict(float)
        for node in device.node_stats if short(device.device) else ():
            if name := _name(node.node_name, names):
                seconds[name] += (node.op_end_rel_nanos - node.op_start_rel_nanos) / 1e9
        if seconds:
            largest = sorted(seconds, key=lambda name: -seconds[name])
            traced.append(Traced(short(device.device), len(seconds), sum(seconds.values()), largest[:MOST_NAMES]))
    return traced


def _name(traced: str, names: Collection[str]) -> str:
    """The longest end of a traced name that is a node's name; "" for what TensorFlow has added.

    A function that was inlined leaves its nodes behind the name of its call ("call/node"), nested ones behind those of
    all calls; those of a branch or a loop behind a number besides ("while/body/_26/node").
    """
    parts = traced.split("/")
    return next((name for at in range(len(parts)) if (name := "/".join(parts[at:])) in names), "")

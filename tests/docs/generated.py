"""The parts of the pages that are made from the code, so that they cannot go stale.

    python -m docs.generated        from the folder `tests`: writes them anew

A page has `<!-- begin NAME -->` and `<!-- end NAME -->` around each such part. Some of a table's columns are made from
the code, the others are a person's: these are kept, by the row's first cell, and a new row has empty ones.
"""

import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
import click
from pydantic import PlainValidator
from pydantic.fields import FieldInfo

import pool
from docs.markdown import FOLDER, ROOT
from pool import errors
from pool.client.futures import JobFuture
from pool.config import quantities
from pool.config.cluster import parse_count_or_all, parse_gpus
from pool.config.gateway import GatewayAdvanced
from pool.config.optimizations import ModelAdvanced
from pool.config.renamed import RENAMED
from pool.config.settings import Settings
from pool.config.tensorflow import LayerRuleSection, TensorFlowOverrides
from pool.core.fleet import SLOT_STEPS, WORKER_STEPS, KilledFor, Role, SlotState, WorkerState
from pool.core.jobs import JOB_STEPS, JobState
from pool.core.trial.table import TABLE, Next
from pool.devices import PlannedDeviceList
from pool.gateway.metrics.families import FAMILIES
from pool.processes.gateways.life import GATEWAY_STEPS, GatewayState
from pool.wire import batches, codec, hot, jobs, records
from pool.wire.client_messages import CLIENT_MESSAGES
from pool.wire.exits import Exit
from pool.wire.faults import Fault
from pool.wire.frames import VERSION
from pool.wire.hot import PLACE
from pool.wire.phases import Phase
from pool.wire.unpacking import Unpacking
from pool.wire.worker_messages import WORKER_MESSAGES

HELP_COLUMNS = 76
_PART = re.compile(r"<!-- begin ([\w-]+) -->\n(.*?)<!-- end \1 -->", re.DOTALL)
_CELL = re.compile(r"(?<!\\)\|")

Table = tuple[list[str], list[list[str]]]
"""The titles of all columns, and of each row the cells that come from the code."""


def parts(text: str) -> dict[str, str]:
    return dict(_PART.findall(text))


def renewed(text: str) -> str:
    """The page with each part as the code has it now."""
    return _PART.sub(
        lambda part: f"<!-- begin {part[1]} -->\n\n{_made(part[1], part[2])}\n\n<!-- end {part[1]} -->", text
    )


def rows(text: str) -> list[list[str]]:
    """The cells of each row of a table, but for its head."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("|")]
    return [[cell.strip() for cell in _CELL.split(line.strip("|"))] for line in lines[2:]]


def _made(name: str, before: str) -> str:
    made = _MAKERS[name]() if name in _MAKERS else _of_section(name)
    if isinstance(made, str):
        return made
    titles, found = made
    kept = {row[0]: row for row in rows(before)}
    lines = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    for row in found:
        own = kept.get(row[0], [])[len(row) :]  # a person's
        cells = [*row, *own, *[""] * (len(titles) - len(row) - len(own))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _code(value: object) -> str:
    return f"`{value}`"


def _text(body: str) -> str:
    return f"```text\n{body.rstrip()}\n```"


# --- states -----------------------------------------------------------------------------------------------------------


def _meanings(members: Iterable[Enum]) -> Table:
    return ["state", "means"], [[member.name, str(member.value)] for member in members]


def _steps(table: Mapping[Any, frozenset[Any]]) -> str:
    wide = max(len(state.name) for state in table)
    order = list(table)
    return _text(
        "\n".join(
            f"{state.name:<{wide}} → {', '.join(step.name for step in sorted(steps, key=order.index))}".rstrip()
            for state, steps in table.items()
        )
    )


# --- the wire ---------------------------------------------------------------------------------------------------------


def _causes() -> Table:
    found = []
    for cause, rule in TABLE.items():
        ends = [_code(each.name) if each is not None else "–" for each in (rule.verdict, rule.stateful)]
        found.append([_code(cause.name), cause.value, rule.next.name, *ends])
    return ["cause", "means", "where it runs next", "error", "error if the model keeps state"], found


def _messages(kinds: Mapping[int, type]) -> Table:
    return ["kind", "message", "fields", "from → to", "says"], [
        [str(kind), message.__name__, ", ".join(map(_code, _fields(message)))]
        for kind, message in sorted(kinds.items())
    ]


def _fields(message: type) -> list[str]:
    return [name for name in inspect.signature(message).parameters if name != "args"]


def _structs() -> Table:
    found = {
        "SUBMIT": jobs._SUBMIT,
        "RESULT, once a message": jobs._RESULTS,
        "RESULT, once a result": jobs._RESULT,
        "RUN": batches._RUN,
        "DONE": batches._DONE,
        "a place in shared memory": PLACE,
    }
    return ["part", "`struct`", "bytes"], [[name, _code(each.format), str(each.size)] for name, each in found.items()]


def _layout() -> str:
    doc = inspect.getdoc(hot) or ""
    return _text("\n".join(line.removeprefix("    ") for line in doc.splitlines() if line.startswith("    ")))


def _metrics() -> Table:
    return ["metric", "type", "labels", "means"], [
        [_code(each.name), each.kind, ", ".join(map(_code, each.labels)), each.text] for each in FAMILIES.values()
    ]


def _exits() -> Table:
    return ["status", "name", "the slot starts again", "means"], [
        [str(each.value), each.name, "yes" if each.restartable else "no"] for each in Exit
    ]


# --- the command line -------------------------------------------------------------------------------------------------


def commands() -> dict[str, click.Command]:
    """Those that a person types: no group of them, but for one that does something by itself."""
    from pool.cli import pool as top

    assert isinstance(top, click.Group)
    found: dict[str, click.Command] = {}
    for name in top.list_commands(click.Context(top)):
        command = top.get_command(click.Context(top), name)
        assert command is not None
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                found[name] = command
            found |= {f"{name} {each}": below for each, below in command.commands.items()}
        else:
            found[name] = command
    return found


def _index() -> Table:
    return ["command", "does", "`--json`"], [[_code(f"pool {name}")] for name in commands()]


def _help() -> str:
    from pool.cli import pool as top

    settings = {**top.context_settings, "terminal_width": HELP_COLUMNS, "max_content_width": HELP_COLUMNS}
    lines = []
    for name, command in commands().items():
        above = click.Context(top, info_name="pool", **settings)
        *groups, last = name.split()
        for group in groups:
            found = top.get_command(above, group)
            assert found is not None
            above = click.Context(found, info_name=group, parent=above, **found.context_settings)
        shown = command.get_help(click.Context(command, info_name=last, parent=above))
        lines += [f"## `pool {name}`", "", _text("\n".join(line.rstrip() for line in shown.splitlines())), ""]
    return "\n".join(lines).rstrip()


# --- the configuration ------------------------------------------------------------------------------------------------

_PARSED = {
    quantities.parse_duration: "duration",
    quantities.parse_positive_duration: "duration above 0",
    quantities.parse_duration_or_auto: '`"auto"` or duration above 0',
    quantities.parse_size: "size",
    quantities._rate_or_unlimited: '`"unlimited"` or number from 1e-6 to 1e9',
    quantities._microseconds_or_off: '`"off"` or whole number, 1 to 10000',
    quantities._fraction_or_unlimited: '`"unlimited"` or number above 0, at most 1',
    quantities._size_or_auto: '`"auto"` or size',
    quantities._count_or_auto: '`"auto"` or whole number from 1',
    quantities._duration_or_off: '`"off"` or duration above 0',
    quantities._size_or_off: '`"off"` or size',
    quantities.parse_replicas: '`"auto"`, `"all"` or whole number from 1',
    parse_count_or_all: '`"all"` or whole number from 1',
    parse_gpus: '`"all"` or whole number from 0',
    quantities._count_or_off: '`"off"` or whole number from 1',
    quantities._size_or_default: '`"auto"` or size',
    quantities._size_or_unlimited: '`"unlimited"` or size',
    quantities._count_or_unlimited: '`"unlimited"` or whole number from 1',
}
_SPECIAL = {  # what only code checks
    ("cluster", "labels"): "table of texts",
    ("pool", "devices"): '`"auto"` or list of devices',
    ("pool", "endpoint"): '`"auto"` or text',
    ("pool", "state"): '`"auto"` or text',
    ("pool", "cpu_affinity"): '`"off"`, `"auto"` or list of core lists',
    ("device", "use"): "a device",
    ("model", "devices"): '`"auto"`, `"all"` or list of devices',
    ("model", "layer_devices"): '`"least-loaded"` or list of rules',
    **dict.fromkeys((("model", "tags"), ("model", "inputs"), ("model", "outputs")), '`"auto"` or list: each a text'),
    ("model", "advanced.grappler"): "table of passes",
    ("model", "advanced.tolerance"): '`"auto"` or number between 0 and 1',
    ("model", "versions"): '`"newest"`, `"all"` or list of numbers',
    ("model", "labels"): "table of numbers",
    ("pool", "group"): '`"off"` or text',
    ("model", "handler"): '`"off"` or text, `module:Class`',
    ("model", "handler_path"): '`"auto"` or text',
    ("model", "handler_options"): "table",
    ("model", "stateful"): '`"auto"`, `true` or `false`',
    **dict.fromkeys((("gateway", "certificate"), ("gateway", "key"), ("gateway", "tokens")), '`"off"` or text'),
    ("client", "models"): '`"all"` or list: each a text',
    ("client", "users"): "list: each a text or a number",
    ("client", "may"): "list of rights",
    ("security", "key"): "text",
    ("tensorflow", "device_count"): "table of whole numbers from 0",
}


def sections() -> dict[str, type[Any]]:
    """By name: `pool`, …, `model`."""
    return {name: _section_class(field) for name, field in Settings.model_fields.items()}


def _section_class(field: FieldInfo) -> type[Any]:
    found = field.annotation
    while get_origin(found) is not None:
        found = get_args(found)[0]
    assert isinstance(found, type)
    return found


def _keys(section: str) -> Table:
    fields = dict(sorted(_keys_in(sections()[section]), key=lambda item: not item[1].is_required()))
    return ["key", "takes", "default", "means"], [
        [_code(name), _takes(section, name, field), _default(section, name, field)] for name, field in fields.items()
    ]


def _keys_in(section: type[Any]) -> Iterator[tuple[str, FieldInfo]]:
    """The keys of a table in it have its name before their own."""
    for name, field in section.model_fields.items():
        if field.annotation in (ModelAdvanced, GatewayAdvanced):
            yield from ((f"{name}.{inner}", each) for inner, each in field.annotation.model_fields.items())
        else:
            yield name, field


def _takes(section: str, name: str, field: FieldInfo) -> str:
    if (section, name) in _SPECIAL:
        return _SPECIAL[section, name]
    return _of_type(field.annotation, field.metadata)


def _of_type(kind: Any, metadata: Iterable[Any]) -> str:
    metadata = list(metadata)
    bounds = [each for each in metadata if isinstance(each, annotated_types.BaseMetadata)]
    for each in list(metadata):
        if isinstance(each, FieldInfo):
            bounds += [bound for bound in each.metadata if isinstance(bound, annotated_types.BaseMetadata)]
        if isinstance(each, PlainValidator):
            return _PARSED[each.func]  # type: ignore[index]
    if (origin := get_origin(kind)) is Literal:
        return " or ".join(_written(each) for each in get_args(kind))
    if origin in (Union, UnionType):
        found = [_of_type(each, bounds) for each in get_args(kind) if each is not type(None)]
        return " or ".join(found)
    if origin is tuple:
        return f"list: each a {_of_type(get_args(kind)[0], ())}"
    if hasattr(kind, "__metadata__"):
        return _of_type(get_args(kind)[0], kind.__metadata__)
    if kind is TensorFlowOverrides:
        return "keys of `[tensorflow]`"
    if kind is LayerRuleSection:
        return "rule"
    if kind is bool:
        return "`true` or `false`"
    return {int: "whole number", float: "number", str: "text"}[kind] + _range(bounds)


def _range(bounds: Iterable[Any]) -> str:
    found = {name: value for each in bounds for name, value in vars_of(each).items()}
    if "gt" in found:
        return f" above {found['gt']}"
    if "ge" in found and "le" in found:
        return f", {found['ge']} to {found['le']}"
    return f" from {found['ge']}" if "ge" in found else ""


def vars_of(bound: Any) -> dict[str, Any]:
    return {name: getattr(bound, name) for name in ("ge", "gt", "le") if hasattr(bound, name)}


def _written(value: object) -> str:
    return _code(f'"{value}"' if isinstance(value, str) else str(value).lower())


def _default(section: str, name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    kind = _takes(section, name, field)
    if value is None:
        return re.findall('`"[a-z]+"`', kind)[0]  # the word in the place of a value
    if isinstance(value, TensorFlowOverrides) or value == {}:
        return "`{}`"
    if isinstance(value, bool | str):
        return _written(value)
    if isinstance(value, tuple):
        return _code(list(value))
    if "duration" in kind:
        return _code(f'"{value * 1000:g}ms"' if value < 1 else f'"{value:g}s"')
    if "size" in kind:
        unit, bits = next((unit, bits) for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)) if value >> bits)
        return _code(f'"{value >> bits}{unit}"')
    return _code(value)


def _of_section(name: str) -> Table:
    section = name.removeprefix("keys-")
    assert section in sections(), f"nothing makes the part {name}"
    return _keys(section)


def _marks() -> Table:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    named = [mark.split(": ", 1) for mark in settings["markers"]]
    return ["mark", "tests"], [[_code(mark), _plain(text)] for mark, text in named]


def _plain(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


# --- Python -----------------------------------------------------------------------------------------------------------


_JSON = {bool: "boolean", int: "integer", float: "number", str: "text", codec.Plain: "any"}
_ELSEWHERE = frozenset({"scheduling", "signatures", "failover", "timeline", "status"})
"""Of those below: they have a table of their own on the page, or are in another one."""
_WITH_ELSEWHERE = (records.Model, records.JobHistory, records.Metrics)


def _record(kind: Any, before: str = "") -> Callable[[], Table]:
    def made() -> Table:
        return ["field", "type", "means"], [[_code(path), told] for path, told in _paths(kind, before, set())]

    return made


def _paths(kind: Any, before: str, told: set[Any]) -> Iterator[tuple[str, str]]:
    """Each field with its type; those of a record within it once, where they come first."""
    for name, annotation in get_type_hints(kind).items():
        yield f"{before}{name}", _json_type(annotation)
        inner, is_list = _record_in(annotation)
        if inner is None or inner in told or (name in _ELSEWHERE and kind in _WITH_ELSEWHERE):
            continue
        told.add(inner)
        yield from _paths(inner, f"{before}{name}{'[]' if is_list else ''}.", told)


def _record_in(annotation: Any) -> tuple[Any, bool]:
    """The record that a field has, or has many of."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return (annotation, False) if issubclass(annotation, codec.Record) else (None, False)
    found = [_record_in(each) for each in get_args(annotation)]
    kind, is_list = next((each for each in found if each[0] is not None), (None, False))
    return kind, is_list or get_origin(annotation) is tuple


def _json_type(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return f"list of {_json_type(inner[0])}"
    if origin is Literal:
        return "text"
    if origin is not None and issubclass(origin, Mapping):
        return f"{_json_type(inner[1])} by name"
    if inner:
        return " or ".join("null" if each is type(None) else _json_type(each) for each in inner)
    return _JSON.get(annotation, "object")


def _error_table() -> Table:
    found = [getattr(errors, name) for name in errors.__all__ if name != "from_fault"]
    return ["error", "to blame", "`retryable`", "means", "what to do"], [
        [_code(each.__name__), each.blame, "yes" if each.retryable else "no"] for each in found
    ]


def _error_tree() -> str:
    lines: list[str] = []

    def add(kind: type, depth: int) -> None:
        lines.append("    " * depth + kind.__name__)
        subclasses: list[type] = kind.__subclasses__()
        for below in sorted(subclasses, key=lambda each: each.__name__):
            if below.__module__ == errors.__name__:
                add(below, depth + 1)

    add(errors.PoolError, 0)
    return _text("\n".join(lines))


def _members(kind: type, *, init: bool = True) -> Callable[[], Table]:
    def made() -> Table:
        names = [name for name in dir(kind) if not name.startswith("_") and name not in INNER and _is_ours(kind, name)]
        found = [[_code(f"{kind.__name__}{_signature(kind)}")]] if init else []
        found += [[_code(_member(kind, name))] for name in names]
        return ["name", "does"], found

    return made


INNER = frozenset(
    {
        *("abandon_after_fork", "finish", "is_cancelled", "is_over", "notify", "outcome", "run_callbacks", "tell"),
        *("measured", "own_rows"),
    }
)
"""What the client's own rooms call."""


def _is_ours(kind: type, name: str) -> bool:
    owner = next(each for each in kind.__mro__ if name in vars(each))
    return owner.__module__.startswith("pool.")


def _member(kind: type, name: str) -> str:
    value = inspect.getattr_static(kind, name)
    if isinstance(value, classmethod | staticmethod):
        return f"{kind.__name__}.{name}{_signature(getattr(kind, name))}"
    return f"{name}{_signature(value, drop_self=True)}" if inspect.isfunction(value) else name


_OPTIONS = {"JobOptions": "**job options", "SessionOptions": "**session options", "ReplicaOptions": "**replica options"}
_OTHERS = "**keys of [[model]]"


def _signature(found: Any, *, drop_self: bool = False) -> str:
    """Without types: these are told in words."""
    signature = inspect.signature(found)
    said = []
    starred = False
    for place, each in enumerate(signature.parameters.values()):
        if drop_self and place == 0:
            continue
        if each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            said.append("*")
        if each.kind is each.VAR_POSITIONAL:
            starred = True
        if each.kind is each.VAR_KEYWORD:
            said.append(next((words for name, words in _OPTIONS.items() if name in str(each.annotation)), _OTHERS))
            continue
        said.append(str(each.replace(annotation=each.empty)))
    if said and said[-1].startswith("**") and len(said) > 1 and said[-2] == "*":
        said.pop(-2)
    return f"({', '.join(said)})"


def _function(found: Any) -> Callable[[], Table]:
    return lambda: (["name", "does"], [[_code(f"{found.__name__}{_signature(found)}")]])


def _options() -> Table:
    from pool.client.request import JobOptions, ReplicaOptions, SessionOptions

    kinds = {"job": JobOptions, "session": SessionOptions, "replica": ReplicaOptions}
    names = {
        name: [word for word, kind in kinds.items() if name in kind.__annotations__] for name in _annotated(JobOptions)
    }
    return ["option", "of", "means"], [[_code(name), ", ".join(words)] for name, words in sorted(names.items())]


def _annotated(kind: Any) -> list[str]:
    return list(kind.__annotations__)


_MAKERS: dict[str, Callable[[], str | Table]] = {
    "slot-states": lambda: _meanings(SlotState),
    "slot-steps": lambda: _steps(SLOT_STEPS),
    "gateway-states": lambda: _meanings(GatewayState),
    "gateway-steps": lambda: _steps(GATEWAY_STEPS),
    "worker-states": lambda: _meanings(WorkerState),
    "worker-steps": lambda: _steps(WORKER_STEPS),
    "roles": lambda: (["role", "means"], _meanings(Role)[1]),
    "job-states": lambda: _meanings(JobState),
    "job-steps": lambda: _steps(JOB_STEPS),
    "phases": lambda: (["phase", "as status shows it", "budget"], [[each.name, each.value] for each in Phase]),
    "causes": _causes,
    "next": lambda: (["where it runs next", "means"], [[each.name, each.value] for each in Next]),
    "client-messages": lambda: _messages(CLIENT_MESSAGES),
    "worker-messages": lambda: _messages(WORKER_MESSAGES),
    "version": lambda: f"The version of the protocol is {VERSION}.",
    "structs": _structs,
    "layout": _layout,
    "exits": _exits,
    "metrics": _metrics,
    "killed-for": lambda: (["cause", "means"], _meanings(KilledFor)[1]),
    "marks": _marks,
    "record-status": _record(records.Status),
    "record-metrics": _record(records.Metrics),
    "record-models": _record(records.Model, "[]."),
    "record-changes": _record(records.Changes),
    "record-job": _record(records.JobHistory),
    "record-times": _record(records.JobTimes),
    "record-crash-report": _record(records.CrashReport),
    "record-signature": _record(records.SignatureInfo),
    "record-placement": _record(records.Placement),
    "record-devices": _record(PlannedDeviceList),
    "faults": lambda: (["fault", "on the wire"], [[each.name, _code(each.value)] for each in Fault]),
    "unpacking": lambda: (["cause", "means"], [[each.name, each.value] for each in Unpacking]),
    "renamed-keys": lambda: (["old", "new"], [[_code(old), _code(new)] for old, new in RENAMED.items()]),
    "commands": _index,
    "help": _help,
    "errors": _error_table,
    "error-tree": _error_tree,
    "options": _options,
    "submit": _function(pool.submit),
    "start": _function(pool.start),
    "client": _members(pool.Client),
    "async-client": _members(pool.AsyncClient),
    "future": _members(JobFuture, init=False),
    "result": _members(pool.JobResult, init=False),
    "session": _members(pool.RemoteSession, init=False),
    "async-session": _members(pool.AsyncSession, init=False),
    "timeline": _members(pool.JobTimeline, init=False),
    "ragged": _members(pool.Ragged),
    "sparse": _members(pool.Sparse),
}

if __name__ == "__main__":
    for page in sorted(FOLDER.glob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = renewed(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page.name)  # noqa: T201  # a person has asked for it

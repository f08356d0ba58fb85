"""The mistakes of a configuration, a line each: where it is, what is wrong, what would be right.

config.toml:12: model[1].device_memory: '6 gigs' is not a size; write "auto", or one such as "512MiB"
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pool.config.renamed import renamed
from pool.config.section import AtKey
from pool.config.settings import Settings, repeated_names
from pool.config.source import KeyPath

__all__ = ["Mistake", "find_mistakes"]

_LISTS = ("model", "device", "client")  # sections that may be there many times
_EXAMPLES = {
    "name": 'a name, such as name = "digits"',
    "path": 'a path, such as path = "models/digits"',
    "use": "a device, such as use = 0",
    "layers": 'a pattern over names of nodes, such as layers = "conv1/.*"',
    "device": 'a device of the worker, such as device = "/cpu:0"',
}
_INSTEAD = {
    "visible_device_list": "a worker sees only the GPUs of its slot; set `[pool] devices` instead",
    "gpu_options": (
        "write its keys without it, such as allow_growth = true; for visible_device_list write `[pool] devices` instead"
    ),
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """`text`: what is wrong; what would be right. `of_section`: it is in one that is there once, or is itself one."""

    path: KeyPath
    text: str
    of_section: bool = False

    def key(self) -> str:
        """`[pool] lanes` in a section that is there once, `model[1].device_memory` in one of many."""
        head, *rest = self.path
        return f"[{_dotted([head])}] {_dotted(rest)}".rstrip() if self.of_section else _dotted(self.path)


def find_mistakes(error: ValidationError | None, data: Mapping[str, object]) -> list[Mistake]:
    """All mistakes of `data`, in the order of the schema. `error` is what the schema has raised for it, if anything."""
    raised = () if error is None else error.errors(include_url=False)
    mistakes = [Mistake(_path(details), _text(details), _of_section(details)) for details in raised]
    # Read from the data: the schema would compare names only when each section is right in itself.
    for kind in ("client", "model"):
        names = [each.get("name") if isinstance(each, Mapping) else None for each in _sequence(data.get(kind, ()))]
        mistakes += [
            Mistake((kind, index, "name"), f"{kind}[{first}] also has the name {names[index]!r}; write another name")
            for index, first in repeated_names(names).items()
            if isinstance(names[index], str)
        ]
    return mistakes


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _dotted(path: Iterable[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{_bare(part)}" for part in path).removeprefix(".")


def _bare(key: str) -> str:
    # TOML lets a quoted key be anything, a line break too, and a mistake is one line.
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def _path(details: ErrorDetails) -> KeyPath:
    path = tuple(part for part in details["loc"] if part != "[key]")
    error = details.get("ctx", {}).get("error")
    return (*path, *error.path) if isinstance(error, AtKey) else path


def _of_section(details: ErrorDetails) -> bool:
    head = _path(details)[0]
    return head not in _LISTS and (head in Settings.model_fields or isinstance(details["input"], Mapping))


def _text(details: ErrorDetails) -> str:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    path = _path(details)
    match kind:
        case "value_error":
            return str(context["error"])  # in a validator's own words
        case "extra_forbidden":
            return _unknown(path)
        case "missing":
            return f"is missing; write {_EXAMPLES.get(str(path[-1]), 'it')}"
        case "int_type" | "int_from_float":
            return f"{value!r} is not a whole number; write digits only, such as 2"
        case "float_type" | "finite_number":
            return f"{value!r} is not a number; write one such as 0.5"
        case "bool_type":
            return f"{value!r} is neither true nor false; write true or false, without quotes"
        case "string_type":
            return f"{value!r} is not a text; write a text in quotes"
        case "string_too_short" | "too_short":
            return "is empty; write a text of at least one character"
        case "greater_than_equal":
            return f"{value!r} is too small; write {context['ge']} or more"
        case "greater_than":
            return f"{value!r} is too small; write more than {context['gt']:g}"
        case "less_than_equal":
            return f"{value!r} is too large; write {context['le']:.10g} or less"
        case "literal_error":
            return f"{value!r} is not a choice; write {context['expected']}"
        case "dict_type":
            return f"{value!r} is not a table; write one such as {{ CPU = 1 }}"
        case "model_type" | "model_attributes_type":
            return _not_a_section(path)
        case "tuple_type" if len(path) == 1 and path[0] in _LISTS:
            return f"is not a list of {path[0]}s; write [[{path[0]}]] with two brackets above each {path[0]}"
        case "tuple_type":
            return f"{value!r} is not a list; write a list such as []"
    return details["msg"]


def _not_a_section(path: KeyPath) -> str:
    if path[-1] in ("tensorflow", "advanced") and len(path) > 1:
        example = "allow_growth = false" if path[-1] == "tensorflow" else "tolerance = 1e-3"
        if path[0] == "gateway":
            example = 'idle_timeout = "75s"'
        return f"is not a table; write one such as {{ {example} }}"
    if "layer_devices" in path:
        return 'is not a rule; write one such as { layers = "conv1/.*", device = "/cpu:0" }'
    if path[0] in _LISTS:
        return f"is not a {path[0]}; write [[{path[0]}]] above its keys"
    return f"is not a section; write [{path[0]}], with one bracket, above its keys"


def _keys(path: KeyPath) -> Sequence[str]:
    """The keys of the table at `path`; of none where no table is known there."""
    table: type[BaseModel] = Settings
    for part in path:
        if isinstance(part, str):
            annotation = table.model_fields[part].annotation if part in table.model_fields else None
            inner = next(iter(get_args(annotation)), annotation)  # of a list, what is in it
            if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
                return ()
            table = inner
    return list(table.model_fields)


def _unknown(path: KeyPath) -> str:
    sections = list(Settings.model_fields)
    key = str(path[-1])
    if key in _INSTEAD:
        return _INSTEAD[key]
    section = str(path[0])
    where = f"[[{section}]]" if section in _LISTS else f"[{section}]"
    inner = [part for part in path[1:] if isinstance(part, str)]
    if len(inner) < 2 and (now := renamed(where, *inner)):
        return f"has a new name; write {now}"
    known = _keys(path[:-1])
    what = "unknown section" if len(path) == 1 else "unknown key"
    if near := difflib.get_close_matches(key, known, n=1):
        return f"{what}; did you mean {near[0]!r}?"
    if homes := [section for section in sections if key in _keys((section,))]:
        home = f"[[{homes[0]}]]" if homes[0] in _LISTS else f"[{homes[0]}]"
        return f"{what}; {key!r} is a key of {home}"
    return f"{what}; write one of {', '.join(known)}"

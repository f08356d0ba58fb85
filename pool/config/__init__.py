"""A TOML file comes in, a frozen `Config` with every key goes out, or `InvalidConfig` with all mistakes at once.

Of each mistake it says where it is, what is wrong, and what would be right.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pool.config.sections import SECTIONS, Config
from pool.errors import InvalidConfig
from pool.wire.signatures import choice

__all__ = ["Config", "explain", "load", "with_model", "without_model"]

STATEMENT = re.compile(r"\s*(\[{0,2})\s*([A-Za-z_][\w.-]*)\s*[\]=]", re.ASCII)  # a header, or a key before its value
LISTS = ("device", "model")
KEYS = [f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.model_fields]

KeyPath = tuple[str | int, ...]


def load(path: Path | None) -> Config:
    """The configuration in a file; None: the demo model on all devices. Raises `InvalidConfig`."""
    if path is not None and not path.is_file():  # a pipe would be waited for
        raise InvalidConfig(f"{path}: is not a file; write the path of a file such as config.toml")
    try:
        text = path.read_text("utf-8-sig") if path else ""
        data = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidConfig(f"{path}: cannot be read as TOML: {error}") from None
    try:
        return Config.model_validate(data, context={"base": path.absolute().parent if path else "/", "names": []})
    except ValidationError as error:
        lines, told = _lines(text), []
        for each in error.errors(include_url=False):
            key = each["loc"]
            name = "".join(f"[{part}]" if isinstance(part, int) else f".{ascii(part)[1:-1]}" for part in key)
            line = max(lines.get(key[:length], 0) for length in range(len(key) + 1))  # of it, or of the table around it
            told.append((line, f"{path}:{line}: {name[1:]}: {_mistake(each)}"))
        raise InvalidConfig("\n".join(text for _, text in sorted(told))) from None


def with_model(config: Config, settings: Mapping[str, Any]) -> Config:
    """With one more [[model]], or in the place of the one of its name. Raises `InvalidConfig`."""
    try:
        (model,) = Config.model_validate({"model": [settings]}, context={"base": "/", "names": []}).model
    except ValidationError as error:
        told = [f"{'.'.join(map(str, each['loc'][2:]))}: {_mistake(each)}" for each in error.errors()]
        raise InvalidConfig("; ".join(told)) from None
    models = {each.name: each for each in config.model} | {model.name: model}
    return config.model_copy(update={"model": [*models.values()]})


def without_model(config: Config, name: str) -> Config:
    """Raises `InvalidConfig` if there is none of this name."""
    models = [each for each in config.model if each.name != name]
    if len(models) == len(config.model):
        raise InvalidConfig(f"no model {name!r:.80}; {_instead(name, [each.name for each in models])}")
    return config.model_copy(update={"model": models})


def explain(key: str) -> str:
    """What the schema says of a key, such as "model.max_batch". Raises `InvalidConfig` for an unknown one."""
    if key not in KEYS:
        raise InvalidConfig(f"{key!r} is unknown; {_instead(key, KEYS)}")
    section, name = key.split(".")
    field = SECTIONS[section].model_fields[name]
    default = "is required" if field.is_required() else f"= {json.dumps(field.default)}"
    return f"{key} {default}\n{field.description}"


def _mistake(details: ErrorDetails) -> str:
    loc, kind = details["loc"], details["type"]
    *above, name = [str(each) for each in loc]
    section = next((each for each in reversed(above) if each in SECTIONS), name)  # [tensorflow] within a [[model]], too
    if kind == "value_error":
        return str(details["ctx"]["error"])
    if kind == "missing":
        return f"is missing: {SECTIONS[section].model_fields[name].description}"
    if kind == "extra_forbidden":
        return f"is unknown; {_instead(name, [*SECTIONS] if len(loc) == 1 else [*SECTIONS[section].model_fields])}"
    if len(loc) > 2 and kind == "model_type":
        return "is no table; write such as { allow_growth = false }"
    if kind == "model_type" or len(loc) == 1:
        return f"is no section; write {f'[[{section}]]' if section in LISTS else f'[{section}]'} above its keys"
    return f"{details['input']!r:.80} does not fit: {details['msg']}"


def _instead(name: str, known: list[str]) -> str:
    if name in ("visible_device_list", "gpu_options"):
        return "a worker sees only its own GPUs: set pool.devices"
    return choice(name, [*known, *(key for key in KEYS if key.endswith(f".{name}"))])


def _lines(text: str) -> dict[KeyPath, int]:
    """Where each bare key stands, which `tomllib` does not tell; of an inline table that is its first line."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    counts: Counter[str] = Counter()
    for number, line in enumerate(text.split("\n"), start=1):
        if match := STATEMENT.match(line):
            keys: KeyPath = tuple(match[2].split("."))
            if match[1] == "[[":
                keys = (*keys, counts[match[2]])
                counts[match[2]] += 1
            table, keys = (keys, keys) if match[1] else (table, (*table, *keys))
            for length in range(1, len(keys) + 1):
                lines.setdefault(keys[:length], number)
    return lines

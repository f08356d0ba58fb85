"""What a key of `config.toml` may be. Nothing is bent: "Gb" would be bits, a text is no number, and `true` is not 1."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from pool.endpoint import ipc_path

__all__ = ["STUB", "Address", "Devices", "Duration", "Existing", "Located", "Name", "Size", "Text", "either"]

STUB = "stub:"  # a model of the tests' backend, which has no files


def either(word: str) -> BeforeValidator:
    """Takes a word, too, which is None once it is read."""
    return BeforeValidator(lambda value: None if value == word else value)


def quantity(units: Mapping[str, float], most: float, such: str) -> BeforeValidator:
    def read(value: Any) -> Any:
        match = re.fullmatch(r"(\d{1,15}) ?([A-Za-z]+)", value, re.ASCII) if isinstance(value, str) else None
        amount = int(match[1]) * units.get(match[2], 0) if match else 0
        if not 0 < amount <= most:
            raise ValueError(f"{value!r:.80} does not fit; write a whole number with its unit, such as {such}")
        return amount

    return BeforeValidator(read)


def _text(value: str) -> str:
    if not value.isprintable() or not 0 < len(value.encode()) <= 255:
        raise ValueError(f"{value!r:.80} does not fit; write a text of 1 to 255 bytes without control characters")
    return value


def _name(value: str, info: Any) -> str:
    if value in info.context["names"]:
        raise ValueError(f"{value!r} is the name of a model above, too; write another")
    info.context["names"].append(value)
    return value


def _address(value: str) -> str:
    ipc_path(value)
    return value


def _located(value: str, info: Any) -> str:
    """Absolute. A link such as `models/current` stays one, and a restart follows it anew."""
    if not value.startswith(STUB):
        value = os.path.abspath(os.path.join(info.context["base"], os.path.expanduser(value)))
    value.encode()  # raises where a folder's name is not UTF-8, so no message can carry it
    return value


def _existing(path: str) -> str:
    if not path.startswith(STUB) and not os.path.exists(path):
        raise ValueError(f"{path!r} is not there; write the path of a file or folder that is")
    return path


def _devices(value: Any) -> Any:
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list) or not entries or [] in entries:
        entries = [None]
    for one in (one for each in entries for one in (each if isinstance(each, list) else [each])):
        is_uuid = isinstance(one, str) and re.fullmatch(r"cpu|(GPU|MIG)-[\w/-]+", one, re.ASCII)
        if not is_uuid and (type(one) is not int or one < 0):
            right = '[0, 1], ["GPU-uuid"], ["cpu", "cpu"], or with a group [[0, 1], 2]'
            raise ValueError(f"{value!r:.80} does not fit; write a list of devices: {right}")
    return entries


Text = Annotated[str, AfterValidator(_text)]
Name = Annotated[Text, AfterValidator(_name)]
Address = Annotated[Text, AfterValidator(_address)]
Located = Annotated[str, Field(pattern=r"^[^\x00]+$"), AfterValidator(_located)]
Existing = Annotated[Located, AfterValidator(_existing)]
Duration = Annotated[float, quantity({"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}, 1e6, '"250ms", "60s" or "1h"')]
SIZES = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
Size = Annotated[int, quantity(SIZES, 2**62, '"512MiB" or "2GiB"')]
Devices = Annotated[list[int | str | list[int | str]], BeforeValidator(_devices)]

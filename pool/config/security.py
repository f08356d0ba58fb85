"""`[security]`: the pool's own key, and whose keys may enter at its tcp:// endpoints."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationInfo

from pool.config.section import Section, SomePath, user_of
from pool.keys import SECRET, KeyFolder, Pair, read_pair

__all__ = ["MENDED", "SecuritySection"]

MENDED = (
    "run `pool keys new server --folder keys`; run `pool keys new NAME --folder keys/clients` for a client;"
    f' write [security] with key = "keys/server{SECRET}" and clients = "keys/clients"'
)


@dataclass(frozen=True, slots=True)
class ServerKey:
    """What was in the file when it was read. Its text does not show the secret half."""

    path: str
    pair: Pair = field(repr=False)

    def __str__(self) -> str:
        return f"{self.path} ({self.pair.public})"


_path_of = TypeAdapter(SomePath)


def _server_key(value: object, info: ValidationInfo) -> ServerKey:
    if isinstance(value, ServerKey):  # of a section that is made from another one
        return value
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError(f'{value!r} is not a path; write one such as "keys/server{SECRET}"')
    path = _path_of.validate_python(value, context=info.context)
    return ServerKey(path, read_pair(Path(path), user_of(info)))


def _folder(value: str, info: ValidationInfo) -> str:
    KeyFolder(Path(value), user_of(info)).check()
    return value


class SecuritySection(Section):
    """With it each tcp:// endpoint asks for a key. `key`: the pool's own, a secret file.

    `clients`: a folder; whose public key is there may enter, until it is taken away. `max_connections`: at once, of all
    tcp:// endpoints together.
    """

    key: Annotated[ServerKey, PlainValidator(_server_key), PlainSerializer(str)]
    clients: Annotated[SomePath, AfterValidator(_folder)]
    max_connections: Annotated[int, Field(ge=1)] = 1000

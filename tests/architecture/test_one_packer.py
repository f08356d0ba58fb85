"""What leaves a process is packed in one place, which no text can make fail."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pool
import workers

PACKAGES = [Path(package.__path__[0]) for package in (pool, workers)]
SOURCES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
PACKERS = {"packb", "pack", "Packer"}
CODEC = "pool/wire/codec.py"
EMBEDDED = "pool/client/embedded.py"  # to its own child, which is told every text as it is


def offences(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(value=ast.Name(id="msgpack"), attr=name) if name in PACKERS:
                yield name
            case ast.ImportFrom(module="msgpack", names=names):
                yield from (alias.name for alias in names if alias.name in PACKERS)


def test_the_codec_alone_packs() -> None:
    found = {str(Path(*path.parts[-3:])): sorted(set(offences(path.read_text()))) for path in SOURCES}
    assert {path: names for path, names in found.items() if names} == {CODEC: ["packb"], EMBEDDED: ["packb"]}


@pytest.mark.parametrize("source", ["msgpack.packb(1)", "from msgpack import Packer", "x = msgpack.Packer()"])
def test_an_offence_is_seen(source: str) -> None:
    assert list(offences(source))

"""Nothing a client sends may run code: no part of the product can unpickle."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pool
import workers

PACKAGES = [Path(package.__path__[0]) for package in (pool, workers)]
SOURCES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))

# `multiprocessing` and `shelve` pickle whatever they carry; numpy pickles arrays of objects in these.
MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "multiprocessing"}
CALLS = {"send_pyobj", "recv_pyobj", "allow_pickle", "dump", "tofile", "fromfile"}
LOADERS = {"load", "save", "savez", "savez_compressed"}


def offences(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.split(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] in MODULES:
                yield module
            case ast.keyword(arg="allow_pickle", value=value):
                if not (isinstance(value, ast.Constant) and value.value is False):
                    yield "allow_pickle"
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name)) if name in LOADERS:
                if not any(keyword.arg == "allow_pickle" for keyword in node.keywords):  # the default of some is True
                    yield f"np.{name}"
            case ast.Attribute(attr=name) if name in CALLS:
                yield name
            case ast.Constant(value=str(text)) if text in MODULES:  # import_module("pickle")
                yield text


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 20
    assert any(path.name == "tensors.py" for path in SOURCES)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(Path(*path.parts[-3:])))
def test_nothing_pickles(path: Path) -> None:
    assert not list(offences(path.read_text()))


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, pickle as p",
        "def f():\n    from pickle import loads",
        "from multiprocessing.connection import Listener",
        "np.load(path)",
        "np.save(path, array)",
        "np.load(path, allow_pickle=True)",
        "load(path, allow_pickle=flag)",
        "array.dump(path)",
        "socket.send_pyobj(1)",
        "importlib.import_module('pickle')",
    ],
)
def test_an_offence_is_seen(source: str) -> None:
    assert list(offences(source))


def test_numpys_own_format_without_pickle_is_none() -> None:
    assert not list(offences("np.load(path, allow_pickle=False)"))

"""Code with one promise broken: each mutant is a patch of one place, which some test has to notice."""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import resources
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest


class Mutant(NamedTuple):
    """`old`, which `file` has once, becomes `new`."""

    promise: str
    file: str
    old: str
    new: str


def modules(package: str, files: Sequence[str], mutant: Mutant | None) -> list[dict[str, Any]]:
    """The names of a fresh copy of each file, with the mutant's patch."""
    made = []
    with patch.dict(sys.modules):
        for file in files:  # each imports from those before it
            source = resources.files(package).joinpath(f"{file.replace('.', '/')}.py").read_text()
            if mutant is not None and mutant.file == file:
                if source.count(mutant.old) != 1:
                    raise ValueError(f"{mutant.promise}: the patch fits {source.count(mutant.old)} times")
                source = source.replace(mutant.old, mutant.new)
            module = sys.modules[f"{package}.{file}"] = ModuleType(f"{package}.{file}")
            exec(compile(source, f"{file}.py", "exec"), vars(module))
            made.append(vars(module))
    return made


def killer(programs: Iterable[partial[object]]) -> str:
    """The program that notices the mutant, and how; empty if it survives. Their first argument is the code."""
    for program in programs:
        try:
            program()
        except (Exception, pytest.fail.Exception) as error:
            why = error if isinstance(error, AssertionError) else ""  # a KeyError would print the whole core
            return f"{program.func.__name__} {program.args[1:]}: {type(error).__name__}: {why}"
    return ""

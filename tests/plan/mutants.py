"""The plan with one promise broken: each mutant is a patch of one place, and some walk has to notice it."""

import sys
from importlib import resources
from types import ModuleType, SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

from plan.walk import walk

FILES = ("plan.versions", "plan.wanted", "plan.rollout", "serve.changes")
SEEDS = range(60)


class Mutant(NamedTuple):
    """`old`, which `file` has once, becomes `new`."""

    promise: str
    file: str
    old: str
    new: str


class Code(SimpleNamespace):
    """The names of all files; to set one sets it in the file that acts."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        self.acting[name] = value


def code(mutant: Mutant | None = None) -> Code:
    names: dict[str, object] = {}
    with patch.dict(sys.modules):
        for file in FILES:  # each imports from those before it
            source = resources.files("pool").joinpath(f"{file.replace('.', '/')}.py").read_text()
            if mutant is not None and mutant.file == file:
                if source.count(mutant.old) != 1:
                    raise ValueError(f"{mutant.promise}: the patch fits {source.count(mutant.old)} times")
                source = source.replace(mutant.old, mutant.new)
            module = sys.modules[f"pool.{file}"] = ModuleType(f"pool.{file}")
            exec(compile(source, f"{file}.py", "exec"), vars(module))
            names |= vars(module)
    made = Code(**names)
    made.__dict__["acting"] = vars(module)
    vars(module)["REST_S"] = 0.0
    vars(module)["log"].disabled = True
    return made


def killer(mutant: Mutant) -> str:
    """The walk that notices it; "" if none does."""
    broken = code(mutant)
    for seed in SEEDS:
        try:
            walk(broken, seed)
        except Exception as error:
            return f"{seed}: {type(error).__name__}: {error}"
    return ""


ROLLOUT, WANTED, CHANGES = "plan.rollout", "plan.wanted", "serve.changes"
MUTANTS: list[Mutant] = []

"""The plan with one promise broken: each mutant is a patch of one place, and some walk has to notice it."""

import sys
from importlib import resources
from types import ModuleType, SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

from plan.walk import walk

FILES = ("plan.versions", "plan.wanted", "plan.rollout", "serve.changes")
SEEDS = range(400)


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
MUTANTS = [
    Mutant(
        "one slot changes at a time",
        ROLLOUT,
        "turn = self._next(wanted, slots) if self.turn is None else self.turn",
        "turn = self._next(wanted, slots)",
    ),
    Mutant(
        "the old worker serves until the new one does",
        ROLLOUT,
        "        elif new.phase is SERVING:\n",
        "        else:\n",
    ),
    Mutant(
        "a replacement that does not come up has failed",
        ROLLOUT,
        "elif new not in self._accepted and (new.phase is DOWN or self._lost(new, old)):",
        "elif new not in self._accepted and self._lost(new, old):",
    ),
    Mutant(
        "so has one that serves less than the old one",
        ROLLOUT,
        "(new.phase is DOWN or self._lost(new, old)):",
        "new.phase is DOWN:",
    ),
    Mutant("two workers are in a slot only if there is room", ROLLOUT, "here == old and fits(old[0])", "here == old"),
    Mutant("a turn ends", ROLLOUT, "            if here == [new]:\n                self.turn = None\n", ""),
    Mutant(
        "of two workers that came up in part the one that serves more stays",
        ROLLOUT,
        "Retire(first if wanted_names(right) & served(first) <= served(last) else last)",
        "Retire(first)",
    ),
    Mutant("models come before they go", ROLLOUT, "(bool(gap(number, wanted, slots)), number)", "number"),
    Mutant(
        "broken files are not served",
        WANTED,
        "version.is_whole and (version.path, version.files.digest) not in facts.broken",
        "version.is_whole",
    ),
    Mutant(
        "what is not at rest is not served",
        WANTED,
        "if version.is_whole and (version.path",
        "if (version.path",
    ),
    Mutant(
        "files that changed in place are another version",
        WANTED,
        'text = number if facts.first.get(version.path) == digest else f"{number}+{digest[:8]}"',
        "text = number",
    ),
    Mutant(
        "the newest version is served",
        WANTED,
        "in reversed(facts.looks[model.name].versions)",
        "in facts.looks[model.name].versions",
    ),
    Mutant(
        "drained slots get nothing",
        WANTED,
        "        return self.drained | self.lost\n",
        "        return self.lost\n",
    ),
    Mutant(
        "lost GPUs get nothing", WANTED, "        return self.drained | self.lost\n", "        return self.drained\n"
    ),
    Mutant(
        "a request that fails is taken back",
        CHANGES,
        "known = replace(before, first",
        "known = replace(self._facts, first",
    ),
    Mutant(
        "a request ends",
        CHANGES,
        "        if (request := self._running) is not None:\n            self._end(request)\n",
        "",
    ),
    Mutant(
        "files that fail are remembered",
        CHANGES,
        "broken={**self._facts.broken, **broken}",
        "broken=broken",
    ),
    Mutant("a disk is looked at again", CHANGES, "            self._next_look = time.monotonic() + every_s\n", ""),
    Mutant(
        "a lost GPU is no failure of the files",
        CHANGES,
        "        if seat.number in self._facts.away:\n            return  # the models are planned without it already\n",
        "",
    ),
]

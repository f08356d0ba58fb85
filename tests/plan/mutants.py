"""The plan with one promise broken: each mutant is a patch of one place, and some walk has to notice it."""

from collections import ChainMap
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace

from plan.walk import walk

from support.mutants import Mutant, modules

FILES = ("plan.versions", "plan.facts", "plan.wanted", "plan.rollout", "serve.changes")
SEEDS = range(400)


class Code(SimpleNamespace):
    """The names of all files; to set one sets it in each file."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        for each in self.files:
            each[name] = value


def code(mutant: Mutant | None = None) -> Code:
    files = modules("pool", FILES, mutant)
    made = Code(**ChainMap({"files": files}, *files[::-1]))
    made.log.disabled = True
    return made


def programs(mutant: Mutant) -> Iterator[partial[object]]:
    """Those that may notice it."""
    broken = code(mutant)
    for seed in SEEDS:
        yield partial(walk, broken, seed)


ROLLOUT, FACTS, WANTED, CHANGES = "plan.rollout", "plan.facts", "plan.wanted", "serve.changes"
FAILED = "(new.phase is DOWN or self._lost(new, old))"
MUTANTS = [
    Mutant("one slot changes at a time", ROLLOUT, " if self.turn is None else self.turn", ""),
    Mutant("the old worker serves until the new one does", ROLLOUT, "elif new.phase is SERVING:\n", "else:\n"),
    Mutant("a replacement that does not come up has failed", ROLLOUT, FAILED, "self._lost(new, old)"),
    Mutant("so has one that serves less than the old one", ROLLOUT, FAILED, "new.phase is DOWN"),
    Mutant("two workers are in a slot only if there is room", ROLLOUT, " and self._fits(old[0])", ""),
    Mutant("a turn ends", ROLLOUT, "            if here == [new]:\n                self.turn = None\n", ""),
    Mutant(
        "of two workers that came up in part the one that serves more stays",
        ROLLOUT,
        " if models_of(right).keys() & served(first) <= served(last) else last",
        "",
    ),
    Mutant("models come before they go", ROLLOUT, "(bool(gap(number, wanted, slots)), number)", "number"),
    Mutant("broken files are not served", WANTED, " and (version.path, version.files.digest) not in facts.broken", ""),
    Mutant("what is not at rest is not served", WANTED, "version.is_whole and (version.path", "(version.path"),
    Mutant(
        "files that changed in place are another version",
        WANTED,
        ' if facts.first.get(version.path) == digest else f"{number}+{digest[:8]}"',
        "",
    ),
    Mutant(
        "the newest version is served",
        WANTED,
        "in reversed(facts.looks[model.name].versions)",
        "in facts.looks[model.name].versions",
    ),
    Mutant("drained slots get nothing", FACTS, "self.drained | self.lost", "self.lost"),
    Mutant("lost GPUs get nothing", FACTS, "self.drained | self.lost", "self.drained"),
    Mutant("a request that fails is taken back", CHANGES, "replace(before, first", "replace(self._facts, first"),
    Mutant("a request ends", CHANGES, "            self._end(request)\n", "            pass\n"),
    Mutant("files that fail are remembered", CHANGES, "{**self._facts.broken, **broken}", "broken"),
    Mutant("a disk is looked at again", CHANGES, "self._next_look = time.monotonic() + every_s", "pass"),
    Mutant("a lost GPU is no failure of the files", CHANGES, "if seat.number in self._facts.away:", "if False:"),
]

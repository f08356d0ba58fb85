"""The configuration, read again while the pool runs.

    `pool reload`, SIGHUP ─► ask ─► a thread: read, check, compare, plan ─► tend ─► Reloaded or a refusal

The loop never waits for the disk: a file on a server that is gone costs a refusal, not the pool.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pool.errors import InvalidConfig
from pool.plan.changeover import changeover
from pool.plan.changes import Change, Reach, differences, needs_new_pool
from pool.plan.plan import Plan
from pool.plan.planning import selected
from pool.plan.selection import Found
from pool.plan.wishes import RELOAD, Wish, wished
from pool.router.front import Question
from pool.wire.entries import is_entry

if TYPE_CHECKING:
    from pool.config import Settings
    from pool.config.settings import ModelSection

__all__ = ["NO_FILE", "Outcome", "Reloaded", "Reloads", "Source"]

READ_S = 8.0  # a client waits longer for its answer

NO_FILE = "this pool was not started with `pool start --config FILE`, so there is no file to read again"


@dataclass(frozen=True, slots=True)
class Source:
    """The file of a configuration, what was read in it, and how it is read again.

    `read` raises `InvalidConfig`; None: there is no file.
    """

    where: str
    settings: "Settings"
    read: "Callable[[], Settings] | None"


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What the pool is to run by from now on, and what is another in it. `first`: as in `Changeover`."""

    settings: "Settings"
    plan: Plan
    changes: tuple[Change, ...]
    first: Plan | None = None
    loaded: "Mapping[str, ModelSection]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`refusal`: each line says what is wrong. `askers`: those who are to hear of it, None for a signal."""

    wish: Wish
    askers: tuple[Question | None, ...]
    found: Reloaded | None
    refusal: str = ""


@dataclass(slots=True)
class _Reading:
    wish: Wish
    askers: tuple[Question | None, ...]
    ends: float
    running: Plan
    towards: Plan
    has_ended: bool = False
    found: Reloaded | None = None
    refusal: str = ""


class Reloads:
    """Used from the pool's loop, but for the reading itself. Who asks while one is under way gets the next one."""

    def __init__(self, source: Source, environ: Mapping[str, str], ring: Callable[[], None]) -> None:
        """`ring` is called in another thread when one reading has ended."""
        self._ring = ring
        self._source = source
        self._environ = environ
        self._settings = source.settings
        self._asked: deque[tuple[Wish, Question | None]] = deque()
        self._loaded: Mapping[str, ModelSection] = {}  # beside those of the file
        self._proven: tuple[Settings, Mapping[str, ModelSection]] = (self._settings, self._loaded)
        self._reading: _Reading | None = None
        self._stuck: _Reading | None = None

    @property
    def settings(self) -> "Settings":
        """By which the pool runs."""
        return self._settings

    @property
    def has_file(self) -> bool:
        return self._source.read is not None

    def ask(self, wish: Wish, question: Question | None) -> None:
        """REQUIRES a file, where it is to be read."""
        self._asked.append((wish, question))

    def adopted(self, found: Reloaded) -> None:
        """The pool runs by these settings now."""
        self._settings, self._loaded = found.settings, dict(found.loaded)

    def proven(self) -> None:
        """Every slot has come up with what these settings say."""
        self._proven = self._settings, self._loaded

    def restore(self, names: AbstractSet[str] | None) -> None:
        """Of these models, or of all there is, what was proven last is what the pool runs by again."""
        settings, loaded = self._proven
        if names is None:
            self._settings, self._loaded = settings, loaded
            return
        good = {model.name: model for model in settings.model if model.name in names}
        models = [
            good.pop(model.name, model)
            for model in self._settings.model
            if model.name not in names or model.name in good
        ]
        self._settings = self._settings.model_copy(update={"model": (*models, *good.values())})
        rest = {name: each for name, each in self._loaded.items() if name not in names}
        self._loaded = {**rest, **{name: each for name, each in loaded.items() if name in names}}

    @property
    def is_busy(self) -> bool:
        return self._reading is not None or bool(self._asked)

    def next_deadline(self, now: float) -> float | None:
        """When `tend` is to be called at the latest, but for what `ring` tells."""
        if self._reading is not None:
            return now if self._reading.has_ended else self._reading.ends
        return now if self._asked else None

    def tend(self, running: Plan, towards: Plan | None = None) -> Iterator[Outcome]:
        """`towards`: what follows the running plan, where something does.

        REQUIRES that `adopted` is called for what is adopted, before the next call.
        """
        towards = towards or running
        now = time.monotonic()
        reading = self._reading
        if reading is not None:
            if reading.has_ended:
                self._reading = None
                if reading.running is running and reading.towards is towards:
                    yield Outcome(reading.wish, reading.askers, reading.found, reading.refusal)
                else:  # it is not about what is served now
                    self._asked.extendleft((reading.wish, asker) for asker in reversed(reading.askers))
            elif now >= reading.ends:
                self._reading, self._stuck = None, reading
                why = f"{_where(self._source, reading.wish)}: could not be read within {READ_S:g} s, with all models"
                yield Outcome(reading.wish, reading.askers, None, why)
        if self._asked and self._reading is None:
            wish = self._asked[0][0]
            askers: list[Question | None] = []
            while self._asked and self._asked[0][0] == wish:
                askers.append(self._asked.popleft()[1])
            if wish.seen is not None and wish.seen is not running:
                return  # what was found was found of another plan
            if self._stuck is not None and not self._stuck.has_ended:
                yield Outcome(
                    wish,
                    tuple(askers),
                    None,
                    f"{_where(self._source, wish)}: the disk has not answered the last time yet",
                )
                return
            self._stuck = None
            self._reading = reading = _Reading(wish, tuple(askers), now + READ_S, running, towards)
            try:
                threading.Thread(target=self._read, args=(reading,), name="reload", daemon=True).start()
            except RuntimeError as error:
                self._reading = None
                yield Outcome(wish, tuple(askers), None, f"{_where(self._source, wish)}: {error}")

    def _read(self, reading: _Reading) -> None:
        """In a thread of its own."""
        plans, wish = (reading.running, reading.towards), reading.wish
        try:
            reading.found = compare(self._source, self._settings, plans[0], self._environ, wish, self._loaded, plans[1])
        except InvalidConfig as error:
            reading.refusal = str(error)
        except Exception as error:  # whatever is on the disk, the pool goes on
            reading.refusal = f"{_where(self._source, wish)}: cannot be read: {type(error).__name__}: {error}"
        finally:
            reading.has_ended = True
            self._ring()


def compare(
    source: Source,
    former: "Settings",
    running: Plan,
    environ: Mapping[str, str],
    wish: Wish = RELOAD,
    loaded: "Mapping[str, ModelSection] | None" = None,
    towards: Plan | None = None,
) -> Reloaded:
    """Says what is another by what is wished, or in the file. `loaded`: models that are served beside the file's.

    `towards`: what follows the running plan, where something does.

    Raises `InvalidConfig` for what is wrong, or takes a new pool.
    """
    settings, loaded = wished(wish, source.read, former, loaded or {})
    changes = differences(former.model_dump(), settings.model_dump())
    where = _where(source, wish)
    refused = [needs_new_pool(where, change) for change in changes if change.reach is Reach.POOL]
    if refused:
        raise InvalidConfig("\n".join(refused))
    # Without such a change no model changes its device, even if the models' files have grown since.
    places = [
        change
        for change in changes
        if change.reach is Reach.PLACEMENT or change.key.endswith(" path") or (change.is_of_model and change.after)
    ]
    wanted = selected(settings, _known(wish, towards or running))
    found = changeover(former, wanted, running, environ, place_anew=bool(places))
    if any(plan.devices != running.devices for plan in (found.last, found.first) if plan is not None):
        # Options of the process that differ take workers of their own.
        apart = [change for change in changes if "session" in change.key or change.is_of_model or change in places]
        lines = [f"{needs_new_pool(where, change)} (there would be other slots)" for change in apart]
        raise InvalidConfig("\n".join(lines))
    changes += _versions(running, found.last)
    return Reloaded(settings, found.last, tuple(changes), found.first, loaded)


def _where(source: Source, wish: Wish) -> str:
    """What a refusal is about: the file, only where it was asked to be read."""
    match wish.what:
        case "reload":
            return source.where
        case "versions":
            return "new versions"
    return f"pool {wish.what}"


def _known(wish: Wish, towards: Plan) -> Found | None:
    """The versions of those models for whose versions nobody has asked to look."""
    if wish.what == "reload":
        return None
    there = towards.versions
    served = {
        name: tuple(there[entry] for entry in entries)
        for name, entries in towards.settled.items()
        if name != wish.model and all(entry in there for entry in entries)
    }
    return {**served, **(wish.versions or {})}


def _versions(running: Plan, plan: Plan) -> Iterator[Change]:
    former, latter = running.settled, plan.settled
    for model in former.keys() & latter.keys():
        for entry in sorted(set(former[model]) ^ set(latter[model]), key=lambda name: (name in former[model], name)):
            if is_entry(entry):
                yield Change(f"[[model]] {entry}", running.paths.get(entry), plan.paths.get(entry), Reach.WORKERS)
    for name, served in plan.versions.items():
        known = running.versions.get(name)
        before, after = None if known is None else known.number, served.number
        if name in running.paths and before != after:
            yield Change(f"[[model]] {name} version", before, after, Reach.WORKERS)

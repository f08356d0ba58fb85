"""What somebody wants a running pool to serve: what its file says, a model more, or one less.

    `pool reload`, SIGHUP ─► ask ─► a thread: read, look, compare, plan ─► tend ─► Granted or a refusal

The loop never waits for the disk: a file on a server that is gone costs a refusal, not the pool.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pool.errors import InvalidConfig
from pool.plan.changes import Change, Reach, differences, needs_new_pool
from pool.plan.plan import Plan
from pool.plan.planning import OtherSlots, choose_all, with_sizes
from pool.plan.planning import plan as planned
from pool.plan.world import World
from pool.wire.entries import is_entry

if TYPE_CHECKING:
    from pool.config import Settings
    from pool.config.settings import ModelSection
    from pool.serve.front import Question

__all__ = ["NO_FILE", "RELOAD", "Granted", "Outcome", "Source", "Wish", "Wishes", "grant", "wish_of"]

READ_S = 8.0  # a client waits longer for its answer

NO_FILE = "this pool was not started with `pool start --config FILE`, so there is no file to read again"


@dataclass(frozen=True, slots=True)
class Source:
    """The file of a configuration, and how it is read again. `read` raises `InvalidConfig`; None: there is no file."""

    where: str
    read: "Callable[[], Settings] | None" = None


@dataclass(frozen=True, slots=True)
class Wish:
    """`what`: reload, load, unload. `model`: the name; `path`: of the one to load."""

    what: str
    model: str = ""
    path: str = ""


RELOAD = Wish("reload")


@dataclass(frozen=True, slots=True)
class Granted:
    """The plan by which it is so, and what is another in it."""

    plan: Plan
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`refusal`: each line says what is wrong. `askers`: those who are to hear of it, None for a signal."""

    wish: Wish
    askers: "tuple[Question | None, ...]"
    granted: Granted | None
    refusal: str = ""


def wish_of(what: str, about: str) -> Wish:
    """From a client's ASK: `about` is the name to unload, or name and path to load as JSON. Raises `ValueError`."""
    if what == "reload":
        return RELOAD
    if what == "unload":
        return Wish(what, about)
    try:
        told = json.loads(about)
    except (ValueError, RecursionError):
        told = None
    if not (isinstance(told, list) and len(told) == 2 and all(isinstance(each, str) for each in told)):
        raise ValueError("give the name and the path of a model")
    return Wish(what, *told)


# --- in a thread ----------------------------------------------------------------------------------------------------


def grant(wish: Wish, source: Source, world: World) -> Granted:
    """Looks for the versions of those models alone for which somebody has asked. Raises `InvalidConfig` for what is
    wrong, or takes a new pool.
    """
    where = source.where if wish.what == "reload" else f"pool {wish.what}"
    settings, loaded = _wanted(wish, source, world)
    changes = differences(world.settings.model_dump(), settings.model_dump())
    if refused := [needs_new_pool(where, change) for change in changes if change.reach is Reach.POOL]:
        raise InvalidConfig("\n".join(refused))
    # Without such a change no model changes its device, even if the models' files have grown since.
    places = [
        change
        for change in changes
        if change.reach is Reach.PLACEMENT or change.key.endswith(" path") or (change.is_of_model and change.after)
    ]
    known = None if wish.what == "reload" else {name: each for name, each in world.found.items() if name != wish.model}
    wanted = replace(world, settings=settings, loaded=loaded, found=choose_all(settings, known), up=frozenset())
    wanted = with_sizes(replace(wanted, unfit={}, may_move=bool(places)))
    try:
        last = first = planned(wanted)
        if first.pending:
            last = planned(replace(wanted.run_by(first), up=frozenset(first.given.names)))
    except OtherSlots:
        # Options of the process that differ take workers of their own.
        apart = [change for change in changes if "session" in change.key or change.is_of_model or change in places]
        lines = [f"{needs_new_pool(where, change)} (there would be other slots)" for change in apart]
        raise InvalidConfig("\n".join(lines)) from None
    if homeless := list(_homeless(world, first)):
        raise InvalidConfig("\n".join(homeless))
    return Granted(first, (*changes, *_versions(world, last)))


def _wanted(wish: Wish, source: Source, world: World) -> "tuple[Settings, Mapping[str, ModelSection]]":
    """The settings, and which of their models are not the file's: those that were loaded and that it does not name."""
    former, loaded = world.settings, world.loaded
    if wish.what == "load":
        section = _section(wish, former)
        models = [section if model.name == wish.model else model for model in former.model]
        if section not in models:
            models.append(section)
        return former.model_copy(update={"model": tuple(models)}), {**loaded, wish.model: section}
    if wish.what == "unload":
        models = [model for model in former.model if model.name != wish.model]
        if len(models) == len(former.model):
            there = ", ".join(model.name for model in former.model)
            raise InvalidConfig(f"no model {wish.model!r:.100} is served; there are: {there}")
        if not models:
            raise InvalidConfig(f"model {wish.model} is the last one: a pool serves one at least; `pool stop` ends it")
        rest = {name: section for name, section in loaded.items() if name != wish.model}
        return former.model_copy(update={"model": tuple(models)}), rest
    assert source.read is not None
    settings = source.read()
    names = {model.name for model in settings.model}
    rest = {name: section for name, section in loaded.items() if name not in names}
    return settings.model_copy(update={"model": (*settings.model, *rest.values())}), rest


def _section(wish: Wish, former: "Settings") -> "ModelSection":
    """Of a name that is served already the other keys stay as they are."""
    from pool.config import parse_settings

    mine = parse_settings({"model": [{"name": wish.model, "path": wish.path}]}, "pool load", Path("/")).model[0]
    served = next((model for model in former.model if model.name == wish.model), None)
    return mine if served is None else served.model_copy(update={"path": mine.path})


def _homeless(world: World, plan: Plan) -> Iterator[str]:
    """A line for each guest that would lose its place by what was wished, and not by what became of devices."""
    for guest in world.guests:
        placed = plan.homes.get(guest.model)
        if placed is None or world.here.devices.index(guest.home) not in placed.devices:
            continue
        if not any((each.model, each.home) == (guest.model, guest.home) for each in plan.guests):
            yield (
                f"model {guest.model} is on {guest.at.label} while {guest.home.label} is gone, and could not stay;"
                " bring that device back with `pool restart SLOT` first, or leave its options as they are"
            )


def _versions(world: World, plan: Plan) -> Iterator[Change]:
    assert world.given is not None, "a pool runs"
    former, latter = world.given.settled, plan.settled
    paths = {model.name: model.path for model in world.given.settings.model}
    for model in sorted(former.keys() & latter.keys()):
        for entry in sorted(set(former[model]) ^ set(latter[model]), key=lambda name: (name in former[model], name)):
            if is_entry(entry):
                yield Change(f"[[model]] {entry}", paths.get(entry), plan.paths.get(entry), Reach.RUNNING)
    for name, served in plan.given.served.items():
        known = world.given.served.get(name)
        before, after = None if known is None else known.number, served.number
        if name in paths and before != after:
            yield Change(f"[[model]] {name} version", before, after, Reach.RUNNING)


# --- in the loop ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    wish: Wish
    askers: "tuple[Question | None, ...]"
    world: World
    ends: float
    has_ended: bool = False
    granted: Granted | None = None
    refusal: str = ""


class Wishes:
    """Used from the pool's loop, but for the reading itself. Who asks while one is under way gets the next one."""

    def __init__(self, source: Source, ring: Callable[[], None]) -> None:
        """`ring` is called in another thread when one reading has ended."""
        self._source = source
        self._ring = ring
        self._asked: deque[tuple[Wish, Question | None]] = deque()
        self._reading: _Reading | None = None
        self._stuck: _Reading | None = None

    def ask(self, wish: Wish, question: "Question | None") -> None:
        """REQUIRES a file, where it is to be read."""
        self._asked.append((wish, question))

    @property
    def is_busy(self) -> bool:
        """Whether something is being decided that may change what is served."""
        return self._reading is not None or bool(self._asked)

    def next_deadline(self, now: float) -> float | None:
        """When `tend` is to be called at the latest, but for what `ring` tells."""
        if self._reading is not None:
            return now if self._reading.has_ended else self._reading.ends
        return now if self._asked else None

    def tend(self, world: World) -> Iterator[Outcome]:
        """REQUIRES that what is granted is the pool's world, before the next call."""
        now, reading = time.monotonic(), self._reading
        if reading is not None and reading.has_ended:
            self._reading = None
            if reading.world is world:
                yield Outcome(reading.wish, reading.askers, reading.granted, reading.refusal)
            else:  # it is not about what is served now
                self._asked.extendleft((reading.wish, asker) for asker in reversed(reading.askers))
        elif reading is not None and now >= reading.ends:
            self._reading, self._stuck = None, reading
            yield self._refuse(reading.wish, reading.askers, f"could not be read within {READ_S:g} s, with all models")
        if self._asked and self._reading is None:
            wish = self._asked[0][0]
            askers: list[Question | None] = []
            while self._asked and self._asked[0][0] == wish:
                askers.append(self._asked.popleft()[1])
            if self._stuck is not None and not self._stuck.has_ended:
                yield self._refuse(wish, askers, "the disk has not answered the last time yet")
                return
            self._stuck = None
            self._reading = reading = _Reading(wish, tuple(askers), world, now + READ_S)
            try:
                threading.Thread(target=self._read, args=(reading,), name="reload", daemon=True).start()
            except RuntimeError as error:
                self._reading = None
                yield self._refuse(wish, askers, str(error))

    def _refuse(self, wish: Wish, askers: "Sequence[Question | None]", why: str) -> Outcome:
        where = self._source.where if wish.what == "reload" else f"pool {wish.what}"
        return Outcome(wish, tuple(askers), None, f"{where}: {why}")

    def _read(self, reading: _Reading) -> None:
        """In a thread of its own."""
        try:
            reading.granted = grant(reading.wish, self._source, reading.world)
        except InvalidConfig as error:
            reading.refusal = str(error)
        except Exception as error:  # whatever is on the disk, the pool goes on
            why = f"cannot be read: {type(error).__name__}: {error}"
            reading.refusal = self._refuse(reading.wish, (), why).refusal
        finally:
            reading.has_ended = True
            self._ring()

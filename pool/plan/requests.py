"""What somebody wants a running pool to serve: what its file says, a model more, or one less.

    `pool reload`, SIGHUP ─► ask ─► a thread: read, look, compare, plan ─► tend ─► Granted or a refusal

The loop never waits for the disk: a file on a server that is gone costs a refusal, not the pool.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pool.errors import InvalidConfig
from pool.plan.changes import Change, Reach, differences, needs_new_pool
from pool.plan.plan import Plan
from pool.plan.planning import OtherSlots, choose_all, with_sizes
from pool.plan.planning import plan as planned
from pool.plan.reading import Reading
from pool.plan.versions import files_of
from pool.plan.world import World
from pool.wire.entries import is_entry
from pool.wire.signatures import Refused

if TYPE_CHECKING:
    from pool.config import Settings
    from pool.config.settings import ModelSection

__all__ = ["NO_FILE", "RELOAD", "Answer", "Granted", "Outcome", "Request", "Requests", "Source", "grant", "request_of"]

READ_S = 8.0  # a client waits longer for its answer

Answer: TypeAlias = Callable[[dict[str, Any] | Refused], None]
"""Takes it to who has asked."""

NO_FILE = "this pool was started without a configuration file, so there is no file to read again"


@dataclass(frozen=True, slots=True)
class Source:
    """The file of a configuration, and how it is read again. `read` raises `InvalidConfig`; None: there is no file."""

    where: str
    read: "Callable[[], Settings] | None" = None

    def name(self, request: "Request") -> str:
        """Of what is refused."""
        return self.where if request.what == "reload" else f"pool {request.what}"


@dataclass(frozen=True, slots=True)
class Request:
    """`what`: reload, load, unload. `model`: the name; `path`: of the one to load, "" for the file's section of it.

    `keys`: what else the section of one with a path has.

    `base`: the folder that a path in these is relative to.
    """

    what: str
    model: str = ""
    path: str = ""
    keys: Mapping[str, Any] = field(default_factory=dict)
    base: str = "/"


RELOAD = Request("reload")


@dataclass(frozen=True, slots=True)
class Granted:
    """The plan by which it is so, and what is another in it."""

    plan: Plan
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`refusal`: each line says what is wrong. `askers`: those who are to hear of it, None for a signal."""

    request: Request
    askers: tuple[Answer | None, ...]
    granted: Granted | None
    refusal: str = ""


def request_of(what: str, about: str) -> Request:
    """From a client's ASK. `about`: the name to unload, or what to load, as JSON: name and path, perhaps also keys and
    their folder. Raises `ValueError`.
    """
    if what == "reload":
        return RELOAD
    if what == "unload":
        return Request(what, about)
    try:
        told = json.loads(about)
    except (ValueError, RecursionError):
        told = None
    kinds = tuple(map(type, told)) if isinstance(told, list) else ()
    if kinds not in ((str, str), (str, str, dict, str)):
        raise ValueError("give the name and the path of a model")
    return Request(what, *told)


# --- in a thread ----------------------------------------------------------------------------------------------------


def grant(request: Request, source: Source, world: World) -> Granted:
    """Looks for the versions of those models alone for which somebody has asked. Raises `InvalidConfig` for what is
    wrong, or takes a new pool.
    """
    where = source.name(request)
    settings, loaded = _wanted(request, source, world)
    changes = differences(world.settings.model_dump(), settings.model_dump())
    if refused := [needs_new_pool(where, change) for change in changes if change.reach is Reach.POOL]:
        raise InvalidConfig("\n".join(refused))
    # Without such a change no model changes its device, even if the models' files have grown since.
    places = [
        change
        for change in changes
        if change.reach is Reach.PLACEMENT or change.key.endswith(" path") or (change.is_of_model and change.after)
    ]
    known = (
        None
        if request.what == "reload"
        else {name: each for name, each in world.found.items() if name != request.model}
    )
    wanted = replace(world, settings=settings, loaded=loaded, found=choose_all(settings, known), up=frozenset())
    wanted = _trying(request, world, wanted)
    wanted = with_sizes(replace(wanted, unfit={}, broken={}, may_move=bool(places)))
    try:
        last = first = planned(wanted)
        if first.pending:
            last = planned(replace(wanted.run_by(first), up=frozenset(first.given.names)))
    except OtherSlots:
        # Options of the process that differ take workers of their own.
        apart = [change for change in changes if "tensorflow" in change.key or change.is_of_model or change in places]
        lines = [f"{needs_new_pool(where, change)} (the slots would change)" for change in apart]
        raise InvalidConfig("\n".join(lines)) from None
    if homeless := list(_homeless(world, first)):
        raise InvalidConfig("\n".join(homeless))
    return Granted(first, (*changes, *_versions(world, last)))


def _trying(request: Request, world: World, wanted: World) -> World:
    """What slots are without is tried again if it may load now: no worker that serves is to make way in vain."""
    models = {model.name: model for model in wanted.settings.model}
    asked = models if request == RELOAD else models.keys() & {request.model}
    files = {**world.files, **{name: files_of(models[name], wanted.found[name]) for name in asked}}
    same = models.keys() - asked
    if request == RELOAD:
        former = {model.name: (model, world.files.get(model.name)) for model in world.settings.model}
        same |= {name for name, model in models.items() if former.get(name) == (model, files[name])}
    return replace(wanted.trying_again(world, same), files=files)


def _wanted(request: Request, source: Source, world: World) -> "tuple[Settings, Mapping[str, ModelSection]]":
    """The settings, and which of their models are not the file's: those that were loaded and that it does not name."""
    former, loaded = world.settings, dict(world.loaded)
    if request.what == "reload":
        assert source.read is not None
        settings = source.read()
        models = {model.name: model for model in settings.model}
        loaded = {name: section for name, section in loaded.items() if name not in models}
        return settings.model_copy(update={"model": (*settings.model, *loaded.values())}), loaded
    models = {model.name: model for model in former.model}
    if request.what == "load":
        if request.path:
            models[request.model] = loaded[request.model] = _section(request, former)
        else:
            models[request.model] = _section_in_file(request.model, source)
            loaded.pop(request.model, None)
    else:
        if request.model not in models:
            raise InvalidConfig(f"no model {request.model!r:.100} is served; there are: {', '.join(models)}")
        if len(models) == 1:
            raise InvalidConfig(
                f"model {request.model} is the only one, and a pool serves at least one; `pool stop` ends the pool"
            )
        del models[request.model]
        loaded.pop(request.model, None)
    return former.model_copy(update={"model": tuple(models.values())}), loaded


def _section_in_file(model: str, source: Source) -> "ModelSection":
    if source.read is None:
        raise InvalidConfig(NO_FILE)
    models = {each.name: each for each in source.read().model}
    if model not in models:
        raise InvalidConfig(f"{source.where} has no model {model!r:.100}; there are: {', '.join(models)}")
    return models[model]


def _section(request: Request, former: "Settings") -> "ModelSection":
    """Of a name that is served already the other keys stay as they are."""
    from pool.config import parse_settings

    served = next((model for model in former.model if model.name == request.model), None)
    set_before = {key: getattr(served, key) for key in served.model_fields_set} if served else {}
    kept = {key: value for key, value in set_before.items() if value is not None}  # None is what is not set
    told = {**kept, **request.keys, "name": request.model, "path": request.path}
    return parse_settings({"model": [told]}, "pool load", Path(request.base)).model[0]


def _homeless(world: World, plan: Plan) -> Iterator[str]:
    """A line for each failover that would lose its place by what was requested, and not by what became of devices.

    A model with further copies needs none where another place of its own is there.
    """
    gone = world.out_of_service
    for failover in world.failovers:
        placed = plan.homes.get(failover.model)
        if placed is None or world.here.devices.index(failover.home) not in placed.devices:
            continue
        if placed.demand.replicas is None and not gone.issuperset(placed.devices):
            continue
        if not any((each.model, each.home) == (failover.model, failover.home) for each in plan.failovers):
            yield (
                f"model {failover.model} is on {failover.at.label} while {failover.home.label} is gone;"
                " this change would end it there."
                " Bring the device back with `pool restart SLOT` first, or keep the model's options"
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


class Requests:
    """Used from the pool's loop, but for the reading itself. Who asks while one is under way gets the next one."""

    def __init__(self, source: Source, ring: Callable[[], None]) -> None:
        """`ring` is called in another thread when one reading has ended."""
        self._source = source
        self._ring = ring
        self._asked: deque[tuple[Request, Answer | None]] = deque()
        self._reading: Reading[Granted] | None = None
        self._request = RELOAD  # which is read for
        self._askers: list[Answer | None] = []  # who want it
        self._stuck: Reading[Granted] | None = None

    def ask(self, request: Request, answer: Answer | None) -> None:
        """REQUIRES a file, where it is to be read."""
        self._asked.append((request, answer))

    @property
    def is_busy(self) -> bool:
        """Whether something is being decided that may change what is served."""
        return self._reading is not None or bool(self._asked)

    def next_deadline(self, now: float) -> float | None:
        """When `tend` is to be called at the latest, but for what `ring` tells."""
        if self._reading is not None:
            return now if self._reading.has_ended else self._reading.began + READ_S
        return now if self._asked else None

    def tend(self, world: World) -> Iterator[Outcome]:
        """REQUIRES that what is granted is the pool's world, before the next call."""
        now, reading = time.monotonic(), self._reading
        if reading is not None and reading.has_ended:
            self._reading = None
            if reading.world is world:
                yield self._outcome(reading.result, reading.error)
            else:  # it is not about what is served now
                self._asked.extendleft((self._request, asker) for asker in reversed(self._askers))
        elif reading is not None and now >= reading.began + READ_S:
            self._reading, self._stuck = None, reading
            yield self._outcome(None, f"and its models could not be read within {READ_S:g} s")
        if self._asked and self._reading is None:
            request, self._askers = self._asked[0][0], []
            while self._asked and self._asked[0][0] == request:
                self._askers.append(self._asked.popleft()[1])
            self._request = request
            if self._stuck is not None and not self._stuck.has_ended:
                yield self._outcome(None, "the disk has not yet answered the last request")
                return
            self._stuck = None
            try:
                self._reading = Reading("reload", world, lambda: grant(request, self._source, world), self._ring)
            except RuntimeError as error:
                yield self._outcome(None, str(error))

    def _outcome(self, granted: Granted | None, refusal: Exception | str | None) -> Outcome:
        if isinstance(refusal, Exception) and not isinstance(refusal, InvalidConfig):
            refusal = f"cannot be read: {type(refusal).__name__}: {refusal}"
        if isinstance(refusal, str):
            refusal = f"{self._source.name(self._request)}: {refusal}"
        return Outcome(self._request, tuple(self._askers), granted, str(refusal or ""))

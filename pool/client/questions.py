"""What a client asks the pool itself, rather than a model."""

import json
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, overload

from pool.client.request import check_name
from pool.client.waits import LOOK_S, not_ready, until_ready, until_updated
from pool.wire.codec import Plain

if TYPE_CHECKING:
    from pool.wire.records import Changes, JobHistory, LogLines, Metrics, Model, Recent, Restarted, SlotHistory, Status

__all__ = ["TIMEOUT_S", "OnWait", "Questions", "check_model", "check_timeout", "plain", "records"]

TIMEOUT_S = 1800.0  # of whoever waits for models that are loaded: as `--timeout`

OnWait = Callable[[str], object]


class Questions(ABC):
    """The part of a `Client` that asks. Each raises `PoolUnreachable` when no answer comes in time."""

    @abstractmethod
    def _ask(self, kind: Any, what: str, about: str = "", within_s: float = math.inf) -> Any:
        """The answer, as a `kind`: one of `pool.wire.records`. Raises `Incompatible` for what is none."""

    def _is_gone(self) -> bool:
        """Whether the pool will never be there again."""
        return False

    def status(self) -> "Status":
        """What `pool status` shows."""
        return self._status(math.inf)

    def metrics(self) -> "Metrics":
        """What `pool metrics` shows: the status, and all that was counted since the pool's start."""
        return self._metrics(math.inf)

    def _metrics(self, within_s: float) -> "Metrics":
        found: Metrics = self._ask(records().Metrics, "metrics", within_s=within_s)
        return found

    def models(self) -> "tuple[Model, ...]":
        """What `pool models` shows: each model with its signatures."""
        found: tuple[Model, ...] = self._ask(tuple[records().Model, ...], "models")  # type: ignore[misc]  # a class at run time
        return found

    def is_ready(self, model: str | None = None) -> bool:
        """Whether the pool can serve, or this model of it: whether `pool health` has exit status 0.

        Raises `ModelNotFound` for a model that the pool does not have.
        """
        check_model(model)
        return not not_ready(self.status(), model)

    def wait_ready(
        self, model: str | None = None, timeout: float = TIMEOUT_S, *, on_wait: OnWait | None = None
    ) -> None:
        """Returns when `is_ready`. The pool need not have started yet.

        `on_wait` is called with what is waited for, some ten times a second. Raises `DeadlineExceeded`, and
        `ModelNotFound` for a model that the pool does not have, or could not load.
        """
        self._await(self._until_ready(model, timeout), on_wait)

    def wait_updated(self, timeout: float = TIMEOUT_S, *, on_wait: OnWait | None = None) -> None:
        """Returns when all slots have what `reload`, `load` or `unload` asked for. `on_wait`: as in `wait_ready`.

        Raises `DeadlineExceeded`, or `WorkerLost` where a worker did not start and the pool serves what it did before.
        """
        self._await(self._until_updated(timeout), on_wait)

    def _await(self, steps: Iterator[str], on_wait: OnWait | None) -> None:
        for why in steps:
            if on_wait is not None:
                on_wait(why)
            time.sleep(LOOK_S)

    def _until_ready(self, model: str | None, timeout_s: float) -> Iterator[str]:
        check_model(model)
        check_timeout(timeout_s)
        return until_ready(self._status, self._is_gone, model, timeout_s)

    def _until_updated(self, timeout_s: float) -> Iterator[str]:
        check_timeout(timeout_s)
        return until_updated(self._status, timeout_s)

    def _status(self, within_s: float) -> "Status":
        found: Status = self._ask(records().Status, "status", within_s=within_s)
        return found

    @overload
    def explain(self, job: int) -> "JobHistory": ...

    @overload
    def explain(self, job: None = None, *, slot: int) -> "SlotHistory": ...

    @overload
    def explain(self, job: None = None, *, slot: None = None) -> "Recent": ...

    def explain(self, job: int | None = None, *, slot: int | None = None) -> "JobHistory | SlotHistory | Recent":
        """What became of a job, whose number is `result.timeline.job`: its `history` and `timeline`.

        Of a slot: what it is now, and the `crash_reports` of its last workers, newest first, which takes the right
        "logs". Of neither: the recent `jobs` and `deaths`, newest first. Raises `InvalidInput` for an unknown job or
        slot, `ValueError` if both are given.
        """
        if job is not None and slot is not None:
            raise ValueError("explain takes a job or a slot, not both")
        found: JobHistory | SlotHistory | Recent
        if slot is not None:
            found = self._ask(records().SlotHistory, "explain", f"slot:{_number('slot', slot)}")
        elif job is not None:
            found = self._ask(records().JobHistory, "explain", str(_number("job", job)))
        else:
            found = self._ask(records().Recent, "explain")
        return found

    def logs(self, since: int = 0) -> "LogLines":
        """Lines of the pool's log after the one with this number, of the last thousand. Takes a right.

        One answer may have a part of them: ask again with its `last` until there are no more.
        """
        found: LogLines = self._ask(records().LogLines, "logs", str(_number("since", since)))
        return found

    def restart(self, slot: int, *, rolling: bool = False) -> int:
        """Requests a new worker for a slot. The old worker finishes what it runs. A FATAL slot is tried again.

        Returns at once, with the incarnation of the new worker; a later one may follow instead. `status()` shows when
        it is READY. If it fails, `status()` has `replacement_failure`, and the old worker keeps serving. `rolling`: if
        the old worker must end first, it waits until `min_ready` others are READY. Raises `InvalidState` if the slot
        cannot have a new worker. Takes a right.
        """
        asked = f"{_number('slot', slot)} rolling" if rolling else str(_number("slot", slot))
        found: Restarted = self._ask(records().Restarted, "restart", asked)
        return found.incarnation

    def drain(self, slot: int) -> None:
        """Takes a slot out of service when its worker has finished what it runs. `restart` brings it back.

        Returns at once; `status()` shows when it is STOPPED. Raises `InvalidState` if the slot cannot be drained. Only
        from the local machine.
        """
        self._ask(Plain, "drain", str(_number("slot", slot)))

    def reload(self) -> "Changes":
        """Makes the pool read its `config.toml` again and apply all changes, or none.

        Returns each change with its key, `before`, `after` and a `line` for people, and the `slots` that get new
        workers for it, one after the other. `status().rolling_update` shows the progress. Raises `InvalidConfig` with a
        line for each mistake, and for each change that needs a new pool. Takes a right.
        """
        return self._changed("reload")

    def _changed(self, what: str, about: str = "") -> "Changes":
        found: Changes = self._ask(records().Changes, what, about)
        return found

    def load(
        self,
        model: str,
        path: str | os.PathLike[str] = "",
        *,
        wait: bool = True,
        timeout: float = TIMEOUT_S,
        **keys: object,
    ) -> "Changes":
        """Adds a model to the running pool. The other models stay where they are.

        `path`: on the pool's machine, as in `config.toml`; without one, the model is what `config.toml` says of it now.
        `keys`: any other key of `[[model]]`, with a value as there; they need a path.
        A model that is already served gets this path and these keys. The model stays until the pool ends, you unload
        it, or a `reload` finds a model of its name in the file. Returns as `reload` does, and raises `InvalidConfig` if
        there is no room or a key is wrong. Takes a right.

        `wait`: return when it is served, as `wait_updated` does, within the `timeout`. If a worker cannot load it,
        the pool drops it and serves what it served before: `WorkerLost`. If only a further copy of a new model cannot
        be loaded, the others serve, and `status().unloadable` says why.
        """
        check_timeout(timeout)
        if "name" in keys:
            raise TypeError("a model's name is the first argument")
        where = _text("path", os.fspath(path))
        if keys and not where:
            raise TypeError("keys of a model are given with its path")
        if where and not where.startswith("stub:"):
            where = os.path.abspath(where)
        about: list[object] = [_text("model", model), where]
        if keys:
            about += [plain(keys), os.getcwd()]  # paths in them are relative, as that one
        found = self._changed("load", json.dumps(about))
        if wait:
            self.wait_updated(timeout)
        return found

    def unload(self, model: str) -> "Changes":
        """Removes a model from the running pool. New workers replace its own, which frees all of its memory.

        Returns as `reload` does. Running jobs are finished. Jobs that wait when its last worker goes, and later jobs,
        end in `ModelNotFound`. A `reload` brings back what the file names. Raises `InvalidConfig` for a model that is
        not served, and for the last one. Takes a right.
        """
        return self._changed("unload", _text("model", model))

    def stop(self) -> None:
        """Asks the pool to finish its jobs and stop. Returns when it has begun. Takes a right."""
        self._ask(Plain, "stop")


def records() -> ModuleType:
    """They come with the first question: to make so many dataclasses takes longer than all else of a client."""
    from pool.wire import records

    return records


def _number(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r:.80}; give its number")
    if value < 0:
        raise ValueError(f"{name} is {value}; give its number, 0 or more")
    return value


def _text(name: str, value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r:.80}; give a text")
    return value


def check_model(model: str | None) -> None:
    if model is not None:
        check_name("a model's name", model)


def check_timeout(timeout: float) -> None:
    if not 0 <= timeout < math.inf:
        raise ValueError(f"timeout is {timeout}; give seconds")


def plain(value: object) -> object:
    """Paths as strings, so that a mapping travels."""
    if isinstance(value, Mapping):
        return {str(key): plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value

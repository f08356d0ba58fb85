"""What a client asks the pool itself, rather than a model."""

import json
import os
from abc import ABC, abstractmethod
from types import ModuleType
from typing import TYPE_CHECKING, Any, overload

from pool.wire.codec import Plain

if TYPE_CHECKING:
    from pool.wire.records import Changes, JobHistory, LogLines, Model, Recent, Restarted, SlotHistory, Status

__all__ = ["Questions"]


class Questions(ABC):
    """The part of a `Client` that asks. Each raises `PoolUnreachable` when no answer comes in time."""

    @abstractmethod
    def _ask(self, kind: Any, what: str, about: str = "") -> Any:
        """The answer, as a `kind`: one of `pool.wire.records`. Raises `Incompatible` for what is none."""

    def status(self) -> "Status":
        """What `pool status` shows."""
        found: Status = self._ask(_records().Status, "status")
        return found

    def models(self) -> "tuple[Model, ...]":
        """What `pool models` shows: each model with its signatures."""
        found: tuple[Model, ...] = self._ask(tuple[_records().Model, ...], "models")  # type: ignore[misc]  # a class at run time
        return found

    @overload
    def explain(self, job: int) -> "JobHistory": ...

    @overload
    def explain(self, job: None = None, *, slot: int) -> "SlotHistory": ...

    @overload
    def explain(self, job: None = None, *, slot: None = None) -> "Recent": ...

    def explain(self, job: int | None = None, *, slot: int | None = None) -> "JobHistory | SlotHistory | Recent":
        """What became of a job, whose number is `result.timeline.job`: its `history` and `timeline`.

        Of a slot: what it is now, and the `crash_reports` of its last workers, newest first; only from the local
        machine. Of neither: the recent `jobs` and `deaths`, newest first. Raises `InvalidInput` for an unknown job or
        slot, `ValueError` if both are given.
        """
        if job is not None and slot is not None:
            raise ValueError("explain takes a job or a slot, not both")
        found: JobHistory | SlotHistory | Recent
        if slot is not None:
            found = self._ask(_records().SlotHistory, "explain", f"slot:{_number('slot', slot)}")
        elif job is not None:
            found = self._ask(_records().JobHistory, "explain", str(_number("job", job)))
        else:
            found = self._ask(_records().Recent, "explain")
        return found

    def logs(self, since: int = 0) -> "LogLines":
        """Lines of the pool's log after the one with this number, of the last thousand. Only from the local machine.

        One answer may have a part of them: ask again with its `last` until there are no more.
        """
        found: LogLines = self._ask(_records().LogLines, "logs", str(_number("since", since)))
        return found

    def restart(self, slot: int, *, rolling: bool = False) -> int:
        """Requests a new worker for a slot. The old worker finishes what it runs. A FATAL slot is tried again.

        Returns at once, with the incarnation of the new worker; a later one may follow instead. `status()` shows when
        it is READY. If it fails, `status()` has `replacement_failure`, and the old worker keeps serving. `rolling`: if
        the old worker must end first, it waits until `min_ready` others are READY. Raises `InvalidState` if the slot
        cannot have a new worker. Only from the local machine.
        """
        asked = f"{_number('slot', slot)} rolling" if rolling else str(_number("slot", slot))
        found: Restarted = self._ask(_records().Restarted, "restart", asked)
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
        line for each mistake, and for each change that needs a new pool. Only from the local machine.
        """
        return self._changed("reload")

    def _changed(self, what: str, about: str = "") -> "Changes":
        found: Changes = self._ask(_records().Changes, what, about)
        return found

    def load(self, model: str, path: str | os.PathLike[str]) -> "Changes":
        """Adds a model to the running pool. The other models stay where they are.

        `path`: on the pool's machine, as in `config.toml`. A model that is already served gets this path. Returns as
        `reload` does, before a worker has loaded the model: it is not done while `status().rolling_update.left`
        names a slot. If a worker cannot load it, the pool drops it and serves what it served before. The model stays
        until the pool ends, you unload it, or a `reload` finds a model of its name in the file. Raises `InvalidConfig`
        if there is no room. Only from the local machine.
        """
        where = _text("path", os.fspath(path))
        if not where.startswith("stub:"):
            where = os.path.abspath(where)
        return self._changed("load", json.dumps([_text("model", model), where]))

    def unload(self, model: str) -> "Changes":
        """Removes a model from the running pool. New workers replace its own, which frees all of its memory.

        Returns as `reload` does. Running jobs are finished. Jobs that wait when its last worker goes, and later jobs,
        end in `ModelNotFound`. A `reload` brings back what the file names. Raises `InvalidConfig` for a model that is
        not served, and for the last one. Only from the local machine.
        """
        return self._changed("unload", _text("model", model))

    def stop(self) -> None:
        """Asks the pool to finish its jobs and stop. Returns when it has begun. Only from the local machine."""
        self._ask(Plain, "stop")


def _records() -> ModuleType:
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

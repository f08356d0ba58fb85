"""What is another in a configuration that was read again, and how far each change reaches. Pure.

running settings ─┐
                  ├─► differences ─► RUNNING   a pool that runs takes it, some of it with new workers
the file, anew ───┘                  PLACEMENT a new worker has what it moves; models stay where they are, if they can
                                     POOL      only a new pool can have it
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["Change", "Reach", "differences", "needs_new_pool"]


class Reach(Enum):
    RUNNING = "the pool uses it from now on, or a slot gets it with its next worker"
    PLACEMENT = "a slot that gains or loses a model gets it with its next worker"
    POOL = "it needs a new pool"


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A key that is not here takes a new pool: what is not known to be applied is not said to be.
_REACH: Mapping[Reach, Mapping[str, frozenset[str]]] = {
    Reach.RUNNING: {
        "pool": _keys("ready drain_timeout min_ready standby watch lanes"),
        "queue": _keys("max_jobs max_bytes client_max_jobs client_max_bytes default_timeout max_attempts"),
        "restart": _keys("intensity period backoff_max replacement"),
        "recycle": _keys("age jobs host_memory"),
        "health": _keys(
            "heartbeat hung_after silent_after import_timeout load_timeout warmup_timeout device_free_timeout"
        ),
        "quarantine": _keys("keep max_bytes"),
        "crash_reports": _keys("keep max_bytes"),
        "shared_memory": _keys("max_bytes client_max_bytes"),
        "tensorflow": _keys(
            "allow_growth per_process_gpu_memory_fraction allow_soft_placement log_device_placement device_count jit"
            " intra_op_parallelism_threads inter_op_parallelism_threads op_libraries"
        ),
        "gateway": _keys(
            "processes tokens insecure certificate key hosts origins repository_control max_body max_connections"
            " max_json max_headers read_timeout idle_timeout"
        ),
        "client": _keys("keys users models weight rate max_jobs max_bytes may"),
        "device": _keys("tensorflow"),
        "model": _keys(
            "max_batch batch_wait allowed_batch_sizes weight max_jobs max_bytes labels path versions tags inputs"
            " outputs batching warmup tensorflow layer_devices copy_per_device stateful handler handler_path"
            " handler_options freeze xla mixed_precision clear_devices grappler tolerance"
        ),
    },
    Reach.PLACEMENT: {"model": _keys("devices replicas device_memory")},
}
_BYTES = _keys("max_bytes client_max_bytes device_memory host_memory max_body max_json max_headers")
# What None is; "off" for all others.
_AUTO = _keys("endpoint state device_memory stateful handler_path tags inputs outputs")
_ALL = _keys("models")  # of a client
_UNLIMITED = _keys("max_jobs max_bytes rate")  # of a model or a client; to the pool's own None is "off"
_SECONDS = _keys(
    "drain_timeout default_timeout period backoff_max heartbeat hung_after silent_after age import_timeout load_timeout"
    " warmup_timeout device_free_timeout batch_wait watch read_timeout idle_timeout"
)


@dataclass(frozen=True, slots=True)
class Change:
    """`key`: "[queue] max_jobs", "[[model]] digits batch_wait", "[[device]] 0 tensorflow"; or "[[model]] digits",
    "[[client]] alice", "[gateway]" and "[security]", which are new or gone.

    The values are those of `Settings`: seconds, bytes; None where there is none.
    """

    key: str
    before: Any
    after: Any
    reach: Reach

    @property
    def is_of_model(self) -> bool:
        """Whether it is a whole model that comes or goes."""
        return self.key.startswith("[[model]]") and self.key.count(" ") == 1

    @property
    def line(self) -> str:
        """`[queue] max_jobs: 10000 → 20000`"""
        is_client = self.key.startswith("[[client]]") and self.key.count(" ") == 1
        if self.is_of_model or is_client or self.key in ("[gateway]", "[security]"):
            return f"{self.key}: is {'gone' if self.after is None else 'new'}"
        name = self.key.rsplit(" ", 1)[-1]
        unlimited = name in _UNLIMITED and self.key.startswith(("[[model]]", "[[client]]"))
        nothing = "auto" if name in _AUTO else "all" if name in _ALL else "unlimited" if unlimited else "off"
        return f"{self.key}: {_shown(name, self.before, nothing)} → {_shown(name, self.after, nothing)}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Each key whose value is another, in the order of the keys. Both are dumps of whole `Settings`.

    Models are told apart by name, devices by what they `use`; their order means nothing.
    """
    changes: list[Change] = []
    for section, values in before.items():
        if section not in ("model", "device", "client", "gateway", "security"):
            changes += _of_table(f"[{section}]", section, values, after[section])
    changes += _of_gateway(before["gateway"], after["gateway"])
    changes += _of_security(before["security"], after["security"])
    changes += _of_clients(before["client"], after["client"])
    changes += _of_devices(before["device"], after["device"])
    changes += _of_models(before["model"], after["model"])
    return changes


def needs_new_pool(where: str, change: Change) -> str:
    """The line by which a change is refused that cannot be had while the pool runs."""
    return f"{where}: {change.line}: this needs a new pool; run `systemctl restart`, or `pool stop` and `pool start`"


def _of_gateway(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Iterator[Change]:
    """Its socket is opened at the start, so one that comes or goes takes a new pool."""
    if before is not None and after is not None:
        yield from _of_table("[gateway]", "gateway", before, after)
    elif before != after:
        listened, listens = (None if each is None else each["listen"] for each in (before, after))
        yield Change("[gateway]", listened, listens, Reach.POOL)


def _of_security(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Iterator[Change]:
    """What a socket asks for is settled when it is opened."""
    if before is not None and after is not None:
        yield from _of_table("[security]", "security", before, after)
    elif before != after:
        former, latter = (None if each is None else each["clients"] for each in (before, after))
        yield Change("[security]", former, latter, Reach.POOL)


def _of_clients(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    """One that is not written has no rules of its own."""
    former, latter = ({client["name"]: client for client in clients} for clients in (before, after))
    for name in {**former, **latter}:
        key = f"[[client]] {name}"
        if name in former and name in latter:
            yield from _of_table(key, "client", former[name], latter[name])
        else:
            yield Change(key, name if name in former else None, name if name in latter else None, Reach.RUNNING)


def _of_devices(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    """One that is not written overrides nothing."""
    former, latter = ({device["use"]: device for device in devices} for devices in (before, after))
    for use in {**former, **latter}:
        nothing = {"use": use, "tensorflow": {}}
        key = f"[[device]] {json.dumps(use)}"
        yield from _of_table(key, "device", former.get(use, nothing), latter.get(use, nothing))


def _of_models(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[Change]:
    former, latter = ({model["name"]: model for model in models} for models in (before, after))
    for name in {**former, **latter}:
        key = f"[[model]] {name}"
        if name in former and name in latter:
            yield from _of_table(key, "model", former[name], latter[name])
        else:
            before_path, after_path = (models.get(name, {}).get("path") for models in (former, latter))
            yield Change(key, before_path, after_path, Reach.RUNNING)


def _of_table(key: str, section: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name, value in before.items():
        if (section, name) in (("model", "advanced"), ("gateway", "advanced")):
            yield from _of_table(f"{key} advanced", section, value, after[name])
        elif value != after[name]:
            yield Change(f"{key} {name}", value, after[name], _reach(section, name, value, after[name]))


def _reach(section: str, name: str, before: Any, after: Any) -> Reach:
    if name == "device_free_timeout" and None in (before, after):
        return Reach.POOL  # where it is off a pool never begins to ask NVML, and knows of no worker what it held
    return next((reach for reach, keys in _REACH.items() if name in keys.get(section, ())), Reach.POOL)


def _shown(name: str, value: Any, nothing: str) -> str:
    """As it could be written in the file; `nothing`: what None is there."""
    if value is None:
        return nothing
    if name in _BYTES and isinstance(value, int):
        unit, size = next(
            ((unit, size) for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if value % size == 0),
            ("B", 1),
        )
        return f"{value // size}{unit}"
    if name in _SECONDS and isinstance(value, float):
        return f"{value * 1000:g}ms" if value < 1 else f"{value:g}s"
    return json.dumps(value, ensure_ascii=False)

"""From a configuration and a machine to a plan, or to a refusal; nothing is started.

settings ─► devices ─► versions: an entry each ─► sizes ─► demands ─► placement ─► shares: a slot each ─► `Plan`
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pool.core.policy import ModelPolicy, Policy
from pool.core.versions import Versions
from pool.cores import share_cores
from pool.devices import Device, Discovery, discover_gpus, pinned_slots, resolve_devices, used_devices
from pool.endpoint import default_endpoint, ipc_path
from pool.errors import InvalidConfig
from pool.launch import cpu_share
from pool.plan.placement import ModelDemand, place
from pool.plan.plan import Plan, at_version
from pool.plan.selection import Found, Selection, select
from pool.plan.shares import ModelShare, Share, refusals, share_out
from pool.plan.sizes import Sizes, find_sizes
from pool.plan.versions import Served
from pool.quarantine import state_folder
from pool.wire.independence import Batching
from pool.wire.texts import is_utf8
from pool.wire.worker_messages import Clear, ModelSettings

if TYPE_CHECKING:
    # pydantic comes with the extra `worker`; reading a plan does not need it
    from pool.config import Settings
    from pool.config.session import SessionOverrides
    from pool.config.settings import ModelSection

__all__ = ["make_plan", "replan", "selected", "share_models"]

_BATCHING = {True: Batching.ALWAYS, False: Batching.NEVER, "auto": Batching.AUTO}
_CLEAR = {True: Clear.ALL, False: Clear.NONE, "missing": Clear.MISSING}


def make_plan(settings: "Settings", environ: Mapping[str, str], discovery: Discovery | None = None) -> Plan:
    """Looks at the machine and decides. Starts nothing. Raises `InvalidConfig` for what cannot be met."""
    selection = selected(settings)
    ipc_path(_endpoint(settings, environ))
    settings, versions = selection.settings, selection.served
    devices, notes = resolve_devices(settings.pool.devices, discovery or discover_gpus(), environ)
    sizes = _sizes(settings, environ, versions)
    demands = _demands(settings, devices, sizes)
    shares = share_models(settings, devices, place(demands, devices), sizes)
    allowed = os.sched_getaffinity(0)
    share = cpu_share(len(allowed), sum(share.device.kind == "cpu" for share in shares))
    cores = _cores(shares, settings.pool.cpu_affinity, allowed)
    return _plan(selection, environ, shares, demands, sizes, share, cores, notes)


def selected(settings: "Settings", found: Found | None = None) -> Selection:
    """The models that are to be planned, a version each. Raises `InvalidConfig` as `make_plan` and `select` do."""
    _check_models(settings)
    return select(settings, found)


def replan(selection: Selection, environ: Mapping[str, str], running: Plan, *, place_anew: bool) -> Plan:
    """The same on the devices that a running pool has; where it listens and what it can see are as they were.

    The models stay on their devices. With `place_anew` those may move that need or want other places than before, and
    if all do not fit so, the others too. Guests are not in it, but their room is kept.
    Raises `InvalidConfig` as `make_plan` does.
    """
    settings, versions = selection.settings, selection.served
    devices = tuple(dict.fromkeys(running.devices))
    rooms = [replace(device, used_bytes=device.used_bytes + running.guest_bytes(device)) for device in devices]
    there = _where(settings, devices, running.at_home())
    if place_anew:
        sizes = _sizes(settings, environ, versions, running)
        demands = _demands(settings, devices, sizes)
        former = {_bare(demand) for demand in running.demands}
        same = {
            demand.name: there[demand.name] for demand in demands if _bare(demand) in former and demand.name in there
        }
        try:
            placed = place(_demands(settings, devices, sizes, same), rooms, there)
        except InvalidConfig:
            placed = place(demands, rooms, there)
    else:
        sizes = {**_sizes(settings, environ, versions), **running.sizes}
        placed = place(_demands(settings, devices, sizes, there), rooms)
    demands = _demands(settings, devices, sizes)
    shares = share_models(settings, devices, placed, sizes)
    return _plan(selection, environ, shares, demands, sizes, running.cpu_share, running.cores, running.notes)


def _bare(demand: ModelDemand) -> ModelDemand:
    """Whatever says how large it is."""
    return replace(demand, source="")


def _cores(
    shares: Sequence[Share], wanted: bool | Sequence[Sequence[int]], allowed: set[int]
) -> tuple[tuple[int, ...], ...]:
    cpu = [share.device.kind == "cpu" for share in shares]
    found = iter(share_cores(sum(cpu), wanted, allowed))
    return tuple(next(found) if one else () for one in cpu)


def _where(settings: "Settings", devices: Sequence[Device], running: Plan) -> Mapping[str, tuple[int, ...]]:
    """The devices of each model that runs already."""
    where = {
        model.name: tuple(
            number
            for number, device in enumerate(devices)
            if any(share.device == device and model.name in share.models for share in running.shares)
        )
        for model in settings.model
    }
    return {name: there for name, there in where.items() if there}


def _endpoint(settings: "Settings", environ: Mapping[str, str]) -> str:
    return settings.pool.endpoint or default_endpoint(environ, os.getuid())


def _check_models(settings: "Settings") -> None:
    if not settings.model:
        raise InvalidConfig('no model is configured: write a [[model]] with name = "…" and path = "…"')
    for model in settings.model:
        if not model.path.startswith("stub:") and not Path(model.path).exists():
            raise InvalidConfig(f"model {model.name}: there is nothing at {model.path}; give the path of a model")
        if model.handler_path and not Path(model.handler_path).is_dir():
            raise InvalidConfig(
                f"model {model.name}: handler_path: {model.handler_path} is no folder;"
                f" write the one that {model.handler}'s module lies in"
            )
        if model.towers and model.speed_ups_message() is not None:
            raise InvalidConfig(
                f"model {model.name}: towers and speed-ups (freeze, jit, mixed_precision, grappler) are not tried"
                " together; leave out one of them"
            )


def _sizes(
    settings: "Settings", environ: Mapping[str, str], versions: Mapping[str, Served], running: Plan | None = None
) -> Sizes:
    state = _state(settings, environ)
    models = {model.name: (at_version(_model(model, state), versions), model.memory) for model in settings.model}
    if running is None:
        return find_sizes(models.values(), settings.pool.lanes, state)
    # What this pool has learned of them since its start is not heeded: it would move models.
    same = [model for model in running.models if models.get(model.name, (None, None))[0] == model]
    former = {model.name: running.sizes[model.name] for model in same}
    return find_sizes(models.values(), settings.pool.lanes, state, former)


def _demands(
    settings: "Settings",
    devices: Sequence[Device],
    sizes: Sizes,
    fixed: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[ModelDemand, ...]:
    """`fixed`: the devices of those that stay where they are."""
    there = fixed or {}
    return tuple(
        ModelDemand(
            model.name,
            there.get(model.name)
            or (model.devices if model.devices in ("auto", "all") else pinned_slots(model.devices, devices)),
            model.replicas,
            _copies(model, sizes, devices) * sizes[model.name].size_bytes * settings.pool.workers_per_device,
            sizes[model.name].source,
        )
        for model in settings.model
    )


def _copies(model: "ModelSection", sizes: Sizes, devices: Sequence[Device]) -> int:
    """How often the model is in one worker. In the largest, for nobody knows yet which it will be."""
    if not model.towers or sizes[model.name].source == "a former run":
        return 1
    return max((len(device.uuids) for device in devices), default=1) or 1


def share_models(
    settings: "Settings",
    devices: Sequence[Device],
    placed: Sequence[Sequence[str]],
    sizes: Sizes,
) -> tuple[Share, ...]:
    """Raises `InvalidConfig` with a line for each thing that cannot be met."""
    overrides = _overrides(settings, devices)
    models = [
        ModelShare(
            model.name,
            [settings.session.message(*of_device, model.session) for of_device in overrides],
            model.rules,
            sizes[model.name].size_bytes,
        )
        for model in settings.model
    ]
    sessions = [settings.session.message(*of_device) for of_device in overrides]
    shares = share_out(devices, placed, models, sessions, settings.pool.workers_per_device)
    refused = list(refusals(shares, models))
    if refused:
        raise InvalidConfig("\n".join(refused))
    return shares


def _overrides(settings: "Settings", devices: Sequence[Device]) -> "list[list[SessionOverrides]]":
    """Those of each device: none, or that of its [[device]]."""
    found: list[list[SessionOverrides]] = [[] for _ in devices]
    for section in settings.device:
        for number in used_devices(section.use, devices):
            if found[number]:
                label = devices[number].label
                raise InvalidConfig(f"[[device]] use: {label} is meant by two of them; write the keys of both into one")
            found[number].append(section.session)
    return found


def _plan(
    selection: Selection,
    environ: Mapping[str, str],
    shares: tuple[Share, ...],
    demands: tuple[ModelDemand, ...],
    sizes: Sizes,
    share: int,
    cores: tuple[tuple[int, ...], ...],
    notes: Sequence[str],
) -> Plan:
    settings, versions = selection.settings, selection.served
    state = _state(settings, environ)
    return Plan(
        endpoint=_endpoint(settings, environ),
        listen=settings.pool.listen,
        shares=shares,
        demands=demands,
        models=tuple(at_version(_model(model, state), versions) for model in settings.model),
        paths={model.name: model.path for model in settings.model},
        versions=versions,
        folders=selection.folders,
        older=selection.older,
        watch_s=settings.pool.watch,
        sizes={model.name: sizes[model.name] for model in settings.model},
        session=settings.session.message(),
        lanes=settings.pool.lanes,
        spin_s=settings.pool.spin_us * 1e-6,
        heartbeat_s=settings.health.heartbeat,
        cpu_share=share,
        cores=cores,
        policy=_policy(settings, selection.versions),
        state=state,
        quarantine_keep=settings.quarantine.keep,
        quarantine_max_bytes=settings.quarantine.max_bytes,
        recorder_keep=settings.recorder.keep,
        recorder_max_bytes=settings.recorder.max_bytes,
        arena_max_bytes=settings.arena.max_bytes or 0,
        arena_client_max_bytes=settings.arena.client_max_bytes,
        notes=tuple(notes),
    )


def _state(settings: "Settings", environ: Mapping[str, str]) -> Path | None:
    state = Path(settings.pool.state) if settings.pool.state else state_folder(environ)
    if state is not None and not is_utf8(str(state)):
        raise InvalidConfig(f"the state folder {str(state)!r} is not text in UTF-8; set [pool] state to another")
    return state


def _model(model: "ModelSection", state: Path | None) -> ModelSettings:
    return ModelSettings(
        name=model.name,
        path=model.path,
        warmup=model.warmup,
        tags=model.tags,
        inputs=model.inputs,
        outputs=model.outputs,
        batch_sizes=model.allowed_batch_sizes or tuple(sorted({1, model.max_batch})),
        cache="" if state is None else str(state / "converted"),
        placement=model.rules,
        least_loaded=model.least_loaded,
        towers=model.towers,
        stateful=model.stateful,
        batching=_BATCHING[model.batching],
        clear_devices=_CLEAR[model.clear_devices],
        handler=model.handler_message(model.allowed_batch_sizes),
        speed_ups=model.speed_ups_message(),
    )


def _silent_after_s(silent_after: float | str, heartbeat_s: float) -> float:
    """Where the configuration leaves it open, ten heartbeats, and long enough for a machine that is busy otherwise."""
    return max(10.0, 10 * heartbeat_s) if isinstance(silent_after, str) else silent_after


def _policy(settings: "Settings", versions: Mapping[str, Versions]) -> Policy:
    health, queue, restart, recycle = settings.health, settings.queue, settings.restart, settings.recycle
    return Policy(
        max_jobs=queue.max_jobs,
        max_bytes=queue.max_bytes,
        client_max_jobs=None if queue.client_max_jobs == "auto" else queue.client_max_jobs,
        client_max_bytes=None if queue.client_max_bytes == "auto" else queue.client_max_bytes,
        default_timeout_s=queue.default_timeout,
        max_attempts=queue.max_attempts,
        restart_intensity=restart.intensity,
        restart_period_s=restart.period,
        backoff_max_s=restart.backoff_max,
        successor=restart.successor,
        import_timeout_s=health.import_timeout,
        load_timeout_s=health.load_timeout,
        warmup_timeout_s=health.warmup_timeout,
        device_free_timeout_s=health.device_free_timeout,
        silent_after_s=_silent_after_s(health.silent_after, health.heartbeat),
        hung_after_s=None if health.hung_after == "auto" else health.hung_after,
        drain_timeout_s=settings.pool.drain_timeout,
        ready_needs_all=settings.pool.ready == "all",
        min_ready=settings.pool.min_ready,
        standby=settings.pool.standby,
        recycle_age_s=recycle.age,
        recycle_jobs=recycle.jobs,
        recycle_bytes=recycle.memory,
        versions=versions,
        models={
            model.name: ModelPolicy(
                batching=_BATCHING[model.batching],
                max_batch=model.max_batch,
                batch_wait_s=model.batch_wait,
                allowed_batch_sizes=model.allowed_batch_sizes,
                weight=model.weight,
                max_jobs=model.max_jobs,
                max_bytes=model.max_bytes,
            )
            for model in settings.model
        },
    )

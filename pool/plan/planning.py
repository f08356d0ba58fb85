"""From a world to a plan, or to a refusal. `look` reads the disk and the machine; `plan` reads nothing, and is pure.

settings ─► look: devices, versions, sizes ─► World ─► plan: an entry each ─► demands ─► homes ─► a slot each ─► Plan
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pool.core import AccountPolicy, ModelPolicy, Policy, Versions
from pool.devices import Device, Discovery, discover_gpus, pinned_slots, resolve_devices, share_cores, used_devices
from pool.endpoint import default_endpoint, group_id, ipc_path
from pool.errors import InvalidConfig
from pool.kept import state_folder
from pool.plan.copies import fill
from pool.plan.failover import fail_over
from pool.plan.footprints import Sizes, find_size
from pool.plan.placement import ModelDemand, place
from pool.plan.plan import Plan
from pool.plan.shares import ModelShare, Share, refusals, share_out
from pool.plan.versions import Found, Selection, choose, files_of, older, select
from pool.plan.world import Here, Home, Unloadable, World
from pool.processes import cpu_share
from pool.wire.entries import model_of
from pool.wire.independence import Batching
from pool.wire.texts import is_utf8
from pool.wire.worker_messages import Clear, ModelSettings

if TYPE_CHECKING:
    # pydantic comes with the extra `worker`; reading a plan does not need it
    from pool.config import Settings
    from pool.config.settings import ModelSection
    from pool.config.tensorflow import TensorFlowOverrides

__all__ = ["OtherSlots", "choose_all", "look", "make_plan", "plan", "with_sizes"]


class OtherSlots(InvalidConfig):
    """A pool that runs has the slots that it has."""


def make_plan(settings: "Settings", environ: Mapping[str, str], discovery: Discovery | None = None) -> Plan:
    """Looks at the machine and decides. Starts nothing. Raises `InvalidConfig` for what cannot be met."""
    return plan(look(settings, environ, discovery))


# --- the world ------------------------------------------------------------------------------------------------------


def look(settings: "Settings", environ: Mapping[str, str], discovery: Discovery | None = None) -> World:
    """What there is before a pool starts. Raises `InvalidConfig`."""
    found = choose_all(settings)
    endpoint = settings.pool.endpoint or default_endpoint(environ, os.getuid())
    ipc_path(endpoint)
    if settings.pool.group:
        group_id(settings.pool.group)
    devices, notes = resolve_devices(settings.pool.devices, discovery or discover_gpus(), environ)
    cores = frozenset(os.sched_getaffinity(0))
    here = Here(tuple(devices), tuple(notes), endpoint, _state(settings, environ), cores)
    newest = [model for model in settings.model if model.versions == "newest" and found[model.name]]
    others = {model.name: older(model.path, found[model.name][-1]) for model in newest}
    found = {name: (*others.get(name, ()), *several) for name, several in found.items()}
    files = {model.name: files_of(model, found[model.name]) for model in settings.model}
    return with_sizes(World(here=here, settings=settings, found=found, files=files))


def choose_all(settings: "Settings", known: Found | None = None) -> Found:
    """By model, the versions to be served; those of models in `known` nobody looks for. Raises `InvalidConfig`."""
    _check_models(settings)
    found = {} if known is None else {model.name: known[model.name] for model in settings.model if model.name in known}
    wrong: list[str] = []
    for model in settings.model:
        try:
            found[model.name] = found[model.name] if model.name in found else choose(model)
        except InvalidConfig as error:
            wrong.append(str(error))
    if wrong:
        raise InvalidConfig("\n".join(wrong))
    return found


def with_sizes(world: World) -> World:
    """The same with the sizes of what is new in it, by the disk. What is there already keeps its size.

    Where models may move, those that have changed are looked at again.
    """
    wanted = select(world.settings, world.found)
    known = {} if world.given is None else {section.name: section for section in world.given.settings.model}
    sizes = {name: size for name, size in world.sizes.items() if name in known}
    for section in wanted.settings.model:
        told = _told(section, world.here.state, wanted)
        if (former := known.get(section.name)) is not None and world.given is not None and section.name in sizes:
            same = (told, section.device_memory) == (_told(former, world.here.state, world.given), former.device_memory)
            if same or not world.may_move:
                continue
        sizes[section.name] = find_size(told, section.device_memory, world.settings.pool.lanes, world.here.state)
    return replace(world, sizes=sizes)


# --- the plan -------------------------------------------------------------------------------------------------------


def plan(world: World) -> Plan:
    """What each slot should have. Where versions come that no job may get before every slot has them, jobs get the
    former ones, which stay beside them; once the new ones are `up`, the plan of that world is without.

    Models stay on their devices. Where they may move, those do that need or want other places than before, and if all
    do not fit so, the others too. The same answer every time. Raises `InvalidConfig` for what cannot be met.
    """
    selection, beside = _given(world)
    try:
        return _plan(world, selection)
    except OtherSlots:
        raise
    except InvalidConfig as error:
        if not beside:
            raise
        why = "the former versions stay until the new ones serve"
        models = ", ".join(sorted({model_of(name) for name in beside}))
        raise InvalidConfig(f"{error}\n{models}: {why}: {', '.join(sorted(beside))}") from None


def _given(world: World) -> tuple[Selection, set[str]]:
    """What is wanted beside what jobs get until they may get that, and the names of the latter."""
    wanted, given = select(world.settings, world.found), world.given
    if given is None:
        return wanted, set()
    settled = given.settled
    changed = [
        name for name, entries in wanted.entries().items() if set(entries) - {*settled.get(name, entries)} - world.up
    ]
    beside = {entry for name in changed for entry in settled[name]} - set(wanted.names)
    sections = (*wanted.settings.model, *(each for each in given.settings.model if each.name in beside))
    versions = dict(wanted.versions)
    for name in changed:
        versions.pop(name, None)
        if name in given.versions:
            versions[name] = _meanwhile(given.versions[name], wanted.versions.get(name))
    served = {name: each for name, each in given.served.items() if name in beside}
    settings = wanted.settings.model_copy(update={"model": sections})
    return Selection(settings, {**wanted.served, **served}, versions), beside


def _meanwhile(before: Versions, after: Versions | None) -> Versions:
    """Labels move at once to versions that are served, and to new ones when those are."""
    if after is None:
        return before
    labels = {
        label: number if number in before.numbers else before.labels[label]
        for label, number in after.labels.items()
        if number in before.numbers or label in before.labels
    }
    return Versions(before.numbers, labels)


def _plan(world: World, selection: Selection) -> Plan:
    settings, here, sizes = selection.settings, world.here, world.sizes
    demands = _demands(settings, here.devices, sizes, world.stateful)
    homes = _homes(world, demands)
    names = [model.name for model in settings.model]
    placed = [[name for name in names if number in homes[name].devices] for number in range(len(here.devices))]
    share = _sharing(settings, here.devices, sizes)
    shares = share(placed)
    if world.slots and tuple(each.device for each in shares) != world.slots:
        raise OtherSlots("the slots would change")
    shares, failovers, stays = fail_over(world, homes.values(), placed, share) if world.lost else (shares, (), ())
    shares = _loadable(shares, world.unloadable)
    nowhere = world.unloadable.keys() & (set(names) - {name for each in shares for name in each.models})
    unloadable = {name: next(iter(world.unloadable[name].values())) for name in nowhere}
    cpu = [each.device.kind == "cpu" for each in shares]
    bound = iter(share_cores(sum(cpu), settings.pool.cpu_affinity, here.cores))
    return Plan(
        world=world,
        given=selection,
        shares=shares,
        homes=homes,
        models=tuple(_told(model, here.state, selection) for model in settings.model),
        cpu_share=cpu_share(len(here.cores), sum(cpu)),
        cores=tuple(next(bound) if one else () for one in cpu),
        policy=_policy(settings, selection.versions, unloadable),
        failovers=failovers,
        stays=stays,
    )


def _loadable(shares: Sequence[Share], unloadable: Unloadable) -> tuple[Share, ...]:
    """Each slot without what its worker could not load, which keeps its place there."""
    return tuple(
        replace(share, models=tuple(name for name in share.models if slot not in unloadable.get(name, {})))
        for slot, share in enumerate(shares)
    )


def _homes(world: World, demands: Sequence[ModelDemand]) -> Mapping[str, Home]:
    """Where each model is placed, with room kept for failovers."""
    devices = world.here.devices
    size = {demand.name: demand.memory_bytes or 0 for demand in demands}
    failovers = [
        sum(size.get(failover.model, 0) for failover in world.failovers if failover.at == device) for device in devices
    ]
    rooms = [replace(each, used_bytes=each.used_bytes + more) for each, more in zip(devices, failovers, strict=True)]
    bare = {demand.name: replace(demand, source="") for demand in demands}
    there = {name: home.devices for name, home in world.homes.items() if name in bare}
    lost = world.out_of_service
    stays = {
        name: _required(world, bare[name], lost)
        for name in there
        if not world.may_move or world.homes[name].demand == bare[name]
    }
    staying = [replace(each, devices=stays.get(each.name, each.devices)) for each in demands]
    try:
        placed = place(staying, rooms, there, lost)
    except InvalidConfig:
        if not world.may_move:
            raise
        placed = place(demands, rooms, there, lost)
    slots = fill(demands, placed, devices, there, lost)
    return {name: Home(demand, slots[name]) for name, demand in bare.items()}


def _required(world: World, demand: ModelDemand, lost: Collection[int]) -> tuple[int, ...]:
    """Where a model stays whatever comes: of the copies that may give way not the last, nor the one with the state."""
    devices = world.homes[demand.name].devices
    if demand.devices != "auto":
        return devices
    first = sorted(devices, key=lambda number: (number != world.stateful.get(demand.name), number in lost))
    return tuple(first[: demand.required])


def _check_models(settings: "Settings") -> None:
    if not settings.model:
        raise InvalidConfig('no model is configured: write a [[model]] with name = "…" and path = "…"')
    for model in settings.model:
        if not model.path.startswith("stub:") and not Path(model.path).exists():
            raise InvalidConfig(f"model {model.name}: there is nothing at {model.path}; give the path of a model")
        if model.handler_path and not Path(model.handler_path).is_dir():
            raise InvalidConfig(
                f"model {model.name}: handler_path: {model.handler_path} is not a folder;"
                f" write the folder of {model.handler}'s module"
            )
        if model.copy_per_device and model.optimizations_message() is not None:
            optimizations = "optimizations (freeze, xla, mixed_precision, grappler)"
            raise InvalidConfig(
                f"model {model.name}: copy_per_device and {optimizations} cannot be combined; leave one of them out"
            )


def _demands(
    settings: "Settings", devices: Sequence[Device], sizes: Sizes, stateful: Collection[str]
) -> tuple[ModelDemand, ...]:
    """`stateful`: models of which a worker has said that they keep state."""
    # Such a model has as many copies in one worker as that has GPUs, and nobody knows yet which it will be.
    most = max((len(device.uuids) for device in devices), default=1) or 1

    def demand(model: "ModelSection") -> ModelDemand:
        size = sizes[model.name]
        copies = most if model.copy_per_device and size.source != "a former run" else 1
        wanted = "all" if model.replicas == "all" else model.devices
        pins = wanted if wanted in ("auto", "all") else pinned_slots(model.name, wanted, devices)
        keeps_state = model.name in stateful if model.stateful is None else model.stateful
        number = model.replicas if isinstance(model.replicas, int) else 1 if keeps_state or pins != "auto" else None
        taken = copies * size.size_bytes * settings.pool.workers_per_device
        return ModelDemand(model.name, pins, number, taken, size.source, model.weight)

    return tuple(demand(model) for model in settings.model)


def _sharing(
    settings: "Settings", devices: Sequence[Device], sizes: Sizes
) -> Callable[[Sequence[Sequence[str]]], tuple[Share, ...]]:
    """The slots of what is placed on each device. Raises `InvalidConfig` with a line for each thing not to be met."""
    overrides = _overrides(settings, devices)
    tensorflow = [settings.tensorflow.message(*of_device) for of_device in overrides]
    models = [
        ModelShare(
            model.name,
            [settings.tensorflow.message(*of_device, model.tensorflow) for of_device in overrides],
            model.rules,
            sizes[model.name].size_bytes,
        )
        for model in settings.model
    ]

    def share(placed: Sequence[Sequence[str]]) -> tuple[Share, ...]:
        shares = share_out(devices, placed, models, tensorflow, settings.pool.workers_per_device)
        if refused := list(refusals(shares, models)):
            raise InvalidConfig("\n".join(refused))
        return shares

    return share


def _overrides(settings: "Settings", devices: Sequence[Device]) -> "list[list[TensorFlowOverrides]]":
    """Those of each device: none, or that of its [[device]]."""
    found: list[list[TensorFlowOverrides]] = [[] for _ in devices]
    for section in settings.device:
        for number in used_devices(section.use, devices):
            if found[number]:
                label = devices[number].label
                raise InvalidConfig(
                    f"[[device]] use: {label} is named by two sections; write the keys of both into one"
                )
            found[number].append(section.tensorflow)
    return found


def _state(settings: "Settings", environ: Mapping[str, str]) -> Path | None:
    state = Path(settings.pool.state) if settings.pool.state else state_folder(environ)
    if state is not None and not is_utf8(str(state)):
        raise InvalidConfig(f"the state folder {str(state)!r} is not UTF-8 text; set [pool] state to another folder")
    return state


def _told(model: "ModelSection", state: Path | None, selection: Selection) -> ModelSettings:
    """What a worker is told of a model; of one that has versions, where the one is that it is to load."""
    served = selection.served.get(model.name)
    return ModelSettings(
        name=model.name,
        path=model.path if served is None else served.path,
        version=None if served is None else served.number,
        warmup=model.warmup,
        tags=model.tags or (),
        inputs=model.inputs or (),
        outputs=model.outputs or (),
        batch_sizes=model.allowed_batch_sizes or tuple(sorted({1, model.max_batch})),
        cache="" if state is None else str(state / "converted"),
        layer_devices=model.rules,
        least_loaded=model.least_loaded,
        copy_per_device=model.copy_per_device,
        stateful=model.stateful,
        batching=Batching(model.batching),
        clear_devices=Clear(model.advanced.clear_devices),
        handler=model.handler_message(model.allowed_batch_sizes),
        optimizations=model.optimizations_message(),
    )


def _policy(settings: "Settings", versions: Mapping[str, Versions], unloadable: Mapping[str, str]) -> Policy:
    health, queue, restart, recycle = settings.health, settings.queue, settings.restart, settings.recycle
    # Where the configuration leaves it open, ten heartbeats, and long enough for a machine that is busy otherwise.
    silent_after_s = max(10.0, 10 * health.heartbeat) if isinstance(health.silent_after, str) else health.silent_after
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
        replacement=restart.replacement,
        import_timeout_s=health.import_timeout,
        load_timeout_s=health.load_timeout,
        warmup_timeout_s=health.warmup_timeout,
        device_free_timeout_s=health.device_free_timeout or 0.0,
        silent_after_s=silent_after_s,
        hung_after_s=None if health.hung_after == "auto" else health.hung_after,
        drain_timeout_s=settings.pool.drain_timeout,
        ready_needs_all=settings.pool.ready != "any",
        min_ready=settings.pool.min_ready,
        standby=settings.pool.standby,
        recycle_age_s=recycle.age,
        recycle_jobs=recycle.jobs,
        recycle_bytes=recycle.host_memory,
        versions=versions,
        unloadable=unloadable,
        accounts={
            client.name: AccountPolicy(client.weight, client.max_jobs, client.max_bytes, client.rate)
            for client in settings.client
        },
        models={
            model.name: ModelPolicy(
                batching=Batching(model.batching),
                max_batch=model.max_batch,
                batch_wait_s=model.batch_wait or 0.0,
                allowed_batch_sizes=model.allowed_batch_sizes,
                weight=model.weight,
                max_jobs=model.max_jobs,
                max_bytes=model.max_bytes,
            )
            for model in settings.model
        },
    )

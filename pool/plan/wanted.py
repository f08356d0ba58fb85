"""What each slot should run: one pure function of all that is known.

A start, a reload, a new version, a lost GPU and a restart differ only in the fact that has changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pool.config.sections import Model
from pool.devices import merged, named
from pool.errors import InvalidConfig
from pool.plan.facts import Facts
from pool.plan.placement import ALL, There, Want, place, place_most

MOST_MODELS = 500
POOLS_OWN = {"weight", "batch_wait", "replicas", "device_memory", "devices", "versions", "labels", "tensorflow"}
"""Keys of a model that a worker does not use, so that a change of them replaces none."""

Told = Mapping[str, Any]
"""What the workers of a slot are told: "generation", "tensorflow", and "models": the settings of each, by its name."""


@dataclass(frozen=True)
class Plan:
    facts: Facts
    slots: dict[int, Told] = field(default_factory=dict)  # those that run something
    models: dict[str, Model] = field(default_factory=dict)
    """By the name that workers know: "digits", or "digits@3" where several versions are served."""
    aliases: dict[str, str] = field(default_factory=dict)  # by a name that clients may use, one of `models`
    missing: dict[str, str] = field(default_factory=dict)  # by name, why a configured model is served nowhere

    def settings(self, model: str) -> Mapping[str, Any]:
        """What workers are told of one of `models`; empty if none is told."""
        return next((told["models"][model] for told in self.slots.values() if model in told["models"]), {})


def models_of(told: Told | None) -> Mapping[str, Mapping[str, Any]]:
    """The settings of each model, by its name; None has none."""
    return told["models"] if told is not None else {}


def planned(facts: Facts, there: There, served: Sequence[Mapping[str, Any]]) -> Plan:
    """`there`: the models of each slot now, by name. `served`: what workers were told of what they serve.

    Raises `InvalidConfig` where models do not fit into the devices.
    """
    plan = Plan(facts)
    entries: dict[str, dict[str, Any]] = {}
    for model in facts.config.model:
        versions = {}
        for each in _versions(model, facts, of_model(model, served)):
            entries[each["name"]], plan.models[each["name"]] = each, model
            versions[each["version"].partition("+")[0]] = each["name"]
        if not versions:
            look = facts.looks[model.name]
            broken = [why for each in look.versions if (why := facts.broken.get((each.path, each.files.digest)))]
            if len(broken) < len(look.versions):  # somebody copies the others, and jobs wait for them
                plan.models[model.name], plan.aliases[model.name] = model, model.name
            else:
                why = "; ".join([*broken, *look.troubles]) or "its files are not there"
                plan.missing[model.name] = f"model {model.name}: {why}"
            continue
        plan.aliases[model.name] = list(versions.values())[-1]
        labels = {label: versions[str(n)] for label, n in model.labels.items() if str(n) in versions}
        plan.aliases.update({f"{model.name}@{each}": name for each, name in (versions | labels).items() if each})
        if not isinstance(model.versions, str):
            for gone in {*map(str, model.versions)} - versions.keys():
                plan.missing[f"{model.name}@{gone}"] = f"model {model.name}: version {gone} is not there"
    if (count := len(plan.models)) > MOST_MODELS:
        raise InvalidConfig(f"{count} versions of models are more than {MOST_MODELS}: list some in `versions`")
    for slot, names in _placed(plan, entries, there).items():
        if names:
            demands = [plan.models[name].tensorflow.model_dump(exclude_unset=True) for name in names]
            tensorflow = merged(facts.config.tensorflow.model_dump(), facts.devices[slot], demands)
            told = {name: entries[name] for name in names}
            plan.slots[slot] = {"generation": facts.generations.get(slot, 0), "tensorflow": tensorflow, "models": told}
    return plan


def of_model(model: Model, served: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What is served of a model, which workers know as "digits" or "digits@3"."""
    mine = [each for each in served if each["name"].partition("@")[0] == model.name]
    return [each for each in mine if each["path"] == model.path or each["path"].startswith(f"{model.path}/")]


def _versions(model: Model, facts: Facts, served: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What workers are told of each version of the model that is to be served, ascending.

    Files that are broken, or not at rest, never take the place of what is served already.
    """
    is_one = model.versions == "newest"
    told = {key: value for key, value in model.model_dump().items() if key not in POOLS_OWN}
    kept = {each["path"]: each for each in served}
    found: list[dict[str, Any]] = []
    for version in reversed(facts.looks[model.name].versions):
        name = model.name if is_one or version.number is None else f"{model.name}@{version.number}"
        is_good = version.is_whole and (version.path, version.files.digest) not in facts.broken
        last = kept.get(version.path)
        if not is_good and last and (version.path, last["files"]) not in facts.broken:
            found.append(told | {"name": name} | {key: last[key] for key in ("path", "version", "files")})
        elif is_good or (version.is_whole and version.number is None):
            number, digest = "" if version.number is None else str(version.number), version.files.digest
            # Files that were changed in place are another version, or two slots could serve different files under one.
            text = number if facts.first.get(version.path) == digest else f"{number}+{digest[:8]}"
            found.append(told | {"name": name, "path": version.path, "version": text, "files": digest})
        if found and is_one:
            break
    if not found and is_one:  # what has gone from the disk is served on from the workers' memory
        found += [told | {key: last[key] for key in ("name", "path", "version", "files")} for last in served[-1:]]
    return found[::-1]


def _placed(plan: Plan, entries: Mapping[str, Mapping[str, Any]], there: There) -> dict[int, list[str]]:
    """The models of every slot. Those for which no slot is left are missing from now on."""
    facts = plan.facts
    places = {slot: device for slot, device in enumerate(facts.devices) if slot not in facts.away}
    wants = []
    for name in entries:
        model = plan.models[name]
        allowed = named(model.devices, facts.devices)
        slots = tuple(slot for slot in allowed if slot not in facts.away)
        if not slots:
            plan.missing[name] = f"model {name}: all of its slots are drained, or their GPUs are lost: {allowed}"
            continue
        replicas = ALL if model.replicas == "all" else model.replicas
        nbytes, source = facts.needs.get((model.name, entries[name]["path"]), (0, ""))
        is_stateful, options = model.stateful is True, model.tensorflow.model_dump(exclude_unset=True)
        wants.append(Want(name, nbytes, slots, replicas, model.weight, is_stateful, options, source))
    if not facts.away:
        return place(wants, places, there)
    placed, left_out = place_most(wants, places, there)
    plan.missing.update({name: f"model {name}: {why}" for name, why in left_out.items()})
    return placed

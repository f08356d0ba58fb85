"""Which models each slot serves: plain cases, and random ones against brute force, which mutants have to fail."""

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from pool.devices import Device
from pool.errors import InvalidConfig
from pool.plan import placement
from pool.plan.placement import ALL, Want, place, place_most
from support.mutants import Mutant, modules

Places = Mapping[int, Device]  # by slot

GIB, SEEDS = 2**30, 600
FRACTION = "per_process_gpu_memory_fraction"


def gpus(*gib: int, labels: str = "abcdefgh") -> Places:
    return {slot: Device("gpu", label=labels[slot], memory_bytes=size * GIB) for slot, size in enumerate(gib)}


CPUS = {slot: Device("cpu", label=f"cpu:{slot}") for slot in range(2)}


def want(name: str, gib: int, *slots: int, replicas: int | None = None, weight: float = 1.0, **options: Any) -> Want:
    return Want(name, gib * GIB, slots or tuple(range(8)), replicas, weight, False, options, "device_memory")


A, B = want("a", 6), want("b", 6)


@pytest.mark.parametrize(
    ("wants", "places", "there", "expected"),
    [
        ([want("s", 1), want("l", 5), want("m", 3)], gpus(8, 8), {}, "l sm"),  # the largest first
        ([want(name, 0) for name in "abc"], gpus(8, 16), {}, "ac b"),  # what is unknown does not meet
        ([want(name, int(gib)) for name, gib in zip("abcde", "64433", strict=True)], gpus(10, 10), {}, "ac bde"),
        ([want("a", 1, weight=2), want("b", 1)], gpus(*[8] * 6), {}, "a b a a b a"),  # further copies by weight
        ([A, want("b", 1, 0, 1)], gpus(8, 8, 4), {}, "a b -"),  # where they fit and may be
        ([want("a", 2, replicas=2), want("b", 1, replicas=ALL)], gpus(8, 8, 8), {}, "ab ab b"),
        ([want("a", 2, replicas=2)], gpus(8, 8, 8, labels="xxy"), {}, "a - a"),  # on different devices first
        ([A, B], gpus(8, 8, labels="xx"), {}, "a b"),  # each slot has its own part of a device
        ([A, B], CPUS, {}, "ab ab"),  # on each
        ([A, B], gpus(8, 8, 8), {0: "a", 1: "a", 2: "a"}, "a b a"),  # a further copy gives way to a model
        ([A, B], gpus(8, 8, 8), {2: "b"}, "a a b"),
    ],
)
def test_places(wants: list[Want], places: Places, there: Mapping[int, str], expected: str) -> None:
    plan = place(wants, places, there)
    assert " ".join("".join(names) or "-" for names in plan.values()) == expected
    assert place(wants, places, plan) == plan  # nothing moves without a reason


def test_a_refusal_is_a_table_of_what_needs_what_and_says_what_would_help() -> None:
    with pytest.raises(InvalidConfig) as refusal:
        place([want("b", 5), want("c", 0, 0, replicas=ALL)], gpus(4), {})
    assert str(refusal.value).splitlines() == [
        "the models do not fit the devices: there is no room for b",
        "  MODEL                         NEEDS  FROM           COPIES  OF SLOTS",
        "  b                           5.0 GiB  device_memory       1  0",
        "  c                                 –  device_memory       1  0",
        "  DEVICE                          HAS  SLOT",
        "  a                           4.0 GiB  0",
        f"what would help: {placement.REMEDY}",
    ]
    told = f"GPUOptions belong to the process: a and b demand {FRACTION} 0.3 and 0.5, so each needs a slot of its own"
    with pytest.raises(InvalidConfig, match=f"\n{told}$"):
        place([want("a", 1, **{FRACTION: 0.3}), want("b", 1, **{FRACTION: 0.5})], gpus(8), {})


def test_after_a_loss_the_least_valuable_is_left_out() -> None:
    wants = [A, want("b", 6, weight=2), want("c", 2, 2), want("d", 1, replicas=3)]
    plan, left_out = place_most(wants, gpus(8, 8), {0: "a", 1: "d", 2: "bc"})
    assert plan == {0: ["a", "d"], 1: ["b", "d"]}
    assert left_out == {"c": "it needs 2.0 GiB, and none of its devices is there and has that left"}


def test_200_models_on_200_slots() -> None:
    draw, slots = random.Random(1), tuple(range(200))
    places = {slot: Device("gpu", label=f"gpu:{slot}", memory_bytes=8 * GIB) for slot in slots}
    wants = [want(f"m{n}", draw.randint(1, 7), *slots) for n in slots]
    began = time.process_time()
    plan = place(wants, places, {})
    assert place(wants, places, plan) == plan
    assert time.process_time() - began < 5  # 0.2 on a quiet machine


def rules(each: Want, places: Places) -> tuple[list[int], int]:
    """The slots that the model may be on, and how many of them it needs."""
    allowed = [slot for slot in places if slot in each.slots]
    if each.replicas is None:
        allowed = [slot for slot in allowed if places[slot].kind == "gpu"] or allowed
    copies = len(allowed) if each.replicas == ALL else each.replicas
    return allowed, 1 if each.is_stateful else copies or 1


def holds(plan: Mapping[int, Sequence[Want]], places: Places) -> bool:
    """No slot has too much, and no two options conflict."""
    used = {slot: sum(each.nbytes for each in on) for slot, on in plan.items()}
    do_agree = all(len({each.options["x"] for each in on if each.options}) < 2 for on in plan.values())
    return do_agree and all(used[slot] <= (each.memory_bytes or inf) for slot, each in places.items())


def fits(choices: Sequence[tuple[Want, Sequence[int], int]], places: Places) -> bool:
    """Whether there is any way to give each model so many of these slots."""

    def goes_on(number: int, plan: dict[int, list[Want]]) -> bool:
        if number == len(choices) or not holds(plan, places):
            return holds(plan, places)
        each, slots, copies = choices[number]
        ways = combinations(slots, copies)
        return any(goes_on(number + 1, {s: on + [each] * (s in way) for s, on in plan.items()}) for way in ways)

    return goes_on(0, {slot: [] for slot in places})


def models(draw: random.Random) -> list[Want]:
    made = []
    for name in draw.sample("vwxyz", draw.randint(1, 5)):
        slots = tuple(slot for slot in range(4) if draw.random() < 0.8)
        replicas, options = draw.choice((None, None, None, 1, 2, ALL)), draw.choice(({}, {}, {"x": 1}, {"x": 2}))
        size, weight = draw.randint(0, 6) * GIB, draw.choice((1.0, 2.0))
        made.append(Want(name, size, slots, replicas, weight, draw.random() < 0.1, options))
    return made


def check(wants: Sequence[Want], places: Places, plan: Mapping[int, Sequence[str]], is_whole: bool) -> None:
    served = {slot: [each for each in wants if each.name in names] for slot, names in plan.items()}
    assert holds(served, places)
    assert plan == {slot: [each.name for each in on] for slot, on in served.items()}
    for each in wants:
        allowed, copies = rules(each, places)
        slots = {slot for slot, on in served.items() if each in on}
        assert slots <= {*allowed}
        if each.replicas is not None or each.is_stateful:
            assert len(slots) == copies or (slots and not is_whole)
            continue
        for slot in {*allowed} - slots:
            is_idle = places[slot].kind == "cpu" or not served[slot]
            assert not (is_idle and holds(served | {slot: [*served[slot], each]}, places))
        shared = [slot for slot in slots if places[slot].kind == "gpu" and len(served[slot]) > 1]
        assert len(shared) <= 1 <= len(slots)


def walk(module: Any, seed: int) -> str:
    """A machine, and a change of it. Raises AssertionError at a broken promise. Returns how it went."""
    draw, outcome, there = random.Random(seed), "", {}
    labels = draw.choice(("abef", "abef", "aaef", "aabb", "abcd", "aacd"))  # c and d are CPUs
    sizes = {each: draw.choice((0, 4, 6, 8, 8)) * GIB * (each not in "cd") for each in "abcdef"}
    kinds = {each: "cpu" if each in "cd" else "gpu" for each in labels}
    devices = [Device(kinds[each], label=each, memory_bytes=sizes[each]) for each in labels]
    places = dict(enumerate(devices[: draw.randint(1, 4)]))
    wants = models(draw)
    for _ in range(3):
        served = {name for slot in places for name in there.get(slot, ())}
        choices = [(each, *rules(each, places)) for each in wants]
        plan, left_out = module.place_most(wants, places, there)
        try:
            assert module.place(wants, places, there) == plan
        except module.InvalidConfig:
            check([each for each in wants if each.name not in left_out], places, plan, is_whole=False)
            assert not all(slots for _, slots, _ in choices) or not fits(choices, places)
            choices.sort(key=lambda choice: (-choice[0].weight, choice[0].name not in served, choice[0].nbytes))
            ones = [(each, slots, 1) for each, slots, _ in choices]
            for number, (each, _, _) in enumerate(ones):
                above = [one for one in ones[:number] if one[0].name not in left_out]
                assert fits([*above, ones[number]], places) == (each.name not in left_out)
            outcome += "refused "
        else:
            check(wants, places, plan, is_whole=not left_out)
            here = [[slot for slot in slots if each.name in there.get(slot, ())] for each, slots, _ in choices]
            still = [(each, now if len(now) >= n else of, n) for (each, of, n), now in zip(choices, here, strict=True)]
            if served and fits(still, places):
                assert all(sum(each.name in plan[slot] for slot in slots) >= n for each, slots, n in still), "it moved"
                outcome += "stayed "
            outcome += "placed "
        there = plan
        wants = wants[1:] + [each for each in models(draw) if each.name not in {one.name for one in wants}]
        places = dict([*places.items()][draw.random() < 0.2 :]) or places
    return outcome


def test_random_machines() -> None:
    counts = Counter(word for seed in range(SEEDS) for word in walk(placement, seed).split())
    assert min(counts[word] for word in ("placed", "refused", "stayed")) > 300, counts


@pytest.mark.parametrize(
    ("promise", "old", "new"),
    [
        ("no slot has more than its memory", " and want.nbytes <= self._free[slot]", ""),
        ("options that conflict are apart", "not want.options or", "True or"),
        ("a model is on slots that it allows", "slots = {*want.slots}", "slots = {*self._on}"),
        ("models stay", "here if is_still and", "here if False and"),
        ("a stateful model has one copy", " and not want.is_stateful", ""),
        ("a further copy shares no GPU", '(device.kind == "cpu" or not on)', "True"),
        ("a CPU never stands in for a GPU", "slots & gpus or slots if", "slots if"),
        ("idle places are filled", "is_idle if is_further else copies", "not is_further and copies"),
        ("what was tried is undone", "self._free[slot] += want.nbytes", "pass"),
        ("every way is tried", "if self._looks < 0:", "if True:"),
        ("all copies are there", "self.needed[want.name]):", "1):"),
        ("the least weight is left out", "(-want.weight,", "(want.weight,"),
    ],
)
def test_a_broken_promise_is_noticed(promise: str, old: str, new: str) -> None:
    (names,) = modules("pool.plan", ["placement"], Mutant(promise, "placement", old, new))
    with pytest.raises(AssertionError):
        print(promise, [walk(SimpleNamespace(**names), seed) for seed in range(SEEDS)])

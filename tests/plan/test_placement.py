"""Which models each slot serves: plain cases, and random ones against brute force, which mutants have to fail."""

import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import combinations
from types import ModuleType
from typing import Any

import pytest

from pool.plan import placement
from pool.plan.placement import ALL, DoesNotFit, Place, Want, place, place_most

GIB, SEEDS = 2**30, 600
There = Mapping[int, Sequence[str]]


def gpus(*gib: int, labels: str = "abcdefgh") -> list[Place]:
    return [Place(slot, labels[slot], size * GIB, False) for slot, size in enumerate(gib)]


def cpus(*slots: int) -> list[Place]:
    return [Place(slot, f"cpu:{slot}", 0, True) for slot in slots]


def want(name: str, gib: int, *slots: int, replicas: int | None = None, weight: float = 1.0, **more: Any) -> Want:
    """Without slots: of all."""
    is_stateful, options = more.get("is_stateful", False), more.get("options", {})
    return Want(name, gib * GIB, slots or tuple(range(8)), replicas, weight, is_stateful, options, "device_memory")


def fractions(*values: float | None) -> list[Want]:
    options = [{"per_process_gpu_memory_fraction": value} if value else {} for value in values]
    return [want(name, 1, options=each) for name, each in zip("abc", options, strict=False)]


FOUR = [want(name, 6) for name in "abcd"]


@pytest.mark.parametrize(
    ("wants", "places", "there", "expected"),
    [
        (FOUR, gpus(8, 8, 8, 8), {}, "a b c d"),
        (FOUR, gpus(*[8] * 8), {}, "a b c d a b c d"),
        (FOUR, gpus(16, 16), {}, "ac bd"),
        # the largest first, and where they fit
        ([want("s", 1), want("l", 5), want("m", 3)], gpus(8, 8), {}, "l sm"),
        ([want("a", 12), want("b", 3, 1)], gpus(8, 16), {}, "- ab"),
        # unknown sizes do not meet; others are tried where spreading leaves no room
        ([want(name, 0) for name in "abc"], gpus(8, 16), {}, "ac b"),
        ([want(name, int(gib)) for name, gib in zip("abcde", "64433", strict=True)], gpus(10, 10), {}, "ac bde"),
        # further copies: by weight, where they fit and may be, none of a stateful model
        ([want("a", 1, weight=2), want("b", 1)], gpus(*[8] * 6), {}, "a b a a b a"),
        ([want("a", 6), want("b", 1, 0, 1)], gpus(8, 8, 4), {}, "a b -"),
        ([want("a", 1, is_stateful=True, replicas=ALL)], gpus(8, 8), {}, "a -"),
        # so many as are asked for, on different devices first; a device's memory is that of all of its slots
        ([want("a", 2, replicas=2), want("b", 1, replicas=ALL)], gpus(8, 8, 8), {}, "ab ab b"),
        ([want("a", 2, replicas=2)], gpus(8, 8, 8, labels="xxy"), {}, "a - a"),
        ([want("a", 5), want("b", 3), want("c", 5)], gpus(8, 8, 8, labels="xxy"), {}, "a b c"),
        # CPUs: everywhere, but never in place of a GPU
        ([want("a", 6), want("b", 6)], cpus(0, 1), {}, "ab ab"),
        ([want("a", 6), want("b", 6, 1, 2)], [*gpus(8), *cpus(1, 2)], {}, "a b b"),
        # what is there stays; a further copy gives way to a model, never the last one
        (FOUR, gpus(16, 16), {0: "a", 1: "bc"}, "ad bc"),
        ([want("a", 6), want("b", 6)], gpus(8, 8, 8), {0: "a", 1: "a", 2: "a"}, "a b a"),
        ([want("a", 6), want("b", 6, 0)], gpus(8, 8), {0: "a", 1: "a"}, "b a"),
        ([want("a", 6), want("b", 6)], gpus(8, 8, 8), {2: "b"}, "a a b"),
        ([want("a", 6), want("b", 7)], gpus(8, 8), {0: "ab"}, "b a"),
        (fractions(0.3, 0.5, None), gpus(8, 4), {}, "ac b"),
    ],
)
def test_places(wants: list[Want], places: list[Place], there: There, expected: str) -> None:
    plan = place(wants, places, there)
    assert " ".join("".join(names) or "-" for names in plan.values()) == expected
    assert place(wants, places, plan) == plan  # nothing moves without a reason


def test_a_refusal_is_a_table_of_what_needs_what_and_says_what_would_help() -> None:
    with pytest.raises(DoesNotFit) as refusal:
        place([want("first", 6), want("b", 5), want("c", 0, 1, replicas=ALL)], gpus(8, 4), {})
    assert str(refusal.value).splitlines() == [
        "the models do not fit the devices: there is no room for b",
        "  MODEL                         NEEDS  FROM           COPIES  OF SLOTS",
        "  first                       6.0 GiB  device_memory       1  0, 1",
        "  b                           5.0 GiB  device_memory       1  0, 1",
        "  c                                 –  device_memory       1  1",
        "  DEVICE                          HAS  SLOT",
        "  a                           8.0 GiB  0",
        "  b                           4.0 GiB  1",
        f"what would help: {placement.REMEDY}",
    ]
    with pytest.raises(DoesNotFit, match=r"no room for a\n.*\n.* 3  0, 1\n"):
        place([want("a", 1, replicas=3)], gpus(8, 8), {})


def test_a_refusal_says_that_options_keep_models_apart() -> None:
    told = "GPUOptions belong to the process: a and b demand per_process_gpu_memory_fraction 0.3 and 0.5, so each"
    with pytest.raises(DoesNotFit, match=f"\n{told} needs a slot of its own$"):
        place(fractions(0.3, 0.5), gpus(8), {})


def test_after_a_loss_the_least_valuable_is_left_out() -> None:
    wants = [want("a", 6), want("b", 6, weight=2), want("c", 2, 2), want("d", 1, replicas=3)]
    plan, left_out = place_most(wants, gpus(8, 8), {0: "a", 1: "d", 2: "bc"})
    assert plan == {0: ["a", "d"], 1: ["b", "d"]}
    assert left_out == {"c": "it needs 2.0 GiB, and none of its devices is there and has that left"}
    plan, left_out = place_most(wants, gpus(8), {0: "a", 1: "d", 2: "bc"})
    assert (plan, [*left_out]) == ({0: ["b", "d"]}, ["a", "c"])


def test_200_models_on_200_slots() -> None:
    draw = random.Random(1)
    places = [Place(slot, f"gpu:{slot}", 8 * GIB, False) for slot in range(200)]
    wants = [Want(f"m{n}", draw.randint(1, 7) * GIB, tuple(range(200)), None, 1.0, False, {}) for n in range(200)]
    began = time.process_time()
    plan = place(wants, places, {})
    assert place(wants, places, plan) == plan
    with pytest.raises(DoesNotFit):
        place([*wants, want("b", 9)], places, plan)
    assert time.process_time() - began < 10
    print(time.process_time() - began)


# --- random machines, by brute force


def copies_of(each: Want, allowed: Sequence[int]) -> int:
    return 1 if each.is_stateful or each.replicas is None else each.replicas if each.replicas > 0 else len(allowed)


def allowed_of(each: Want, places: Sequence[Place]) -> list[int]:
    allowed = [where for where in places if where.slot in each.slots]
    of_gpus = [where for where in allowed if not where.is_cpu]
    return [where.slot for where in (of_gpus if of_gpus and each.replicas is None else allowed)]


def holds(plan: Mapping[int, Sequence[Want]], places: Sequence[Place]) -> bool:
    """No device has too much, and no two options conflict."""
    used: dict[str, int] = defaultdict(int)
    for where in places:
        used[where.label] += sum(each.nbytes for each in plan[where.slot])
        for one, other in combinations(plan[where.slot], 2):
            if any(one.options[key] != other.options.get(key, one.options[key]) for key in one.options):
                return False
    return all(used[where.label] <= where.memory_bytes or not where.memory_bytes for where in places)


def fits(choices: Sequence[tuple[Want, Sequence[int], int]], places: Sequence[Place]) -> bool:
    """Whether there is any way to give each model so many of these slots."""

    def goes_on(number: int, plan: dict[int, list[Want]]) -> bool:
        if number == len(choices) or not holds(plan, places):
            return holds(plan, places)
        each, slots, copies = choices[number]
        ways = combinations(slots, copies)
        return any(goes_on(number + 1, {s: on + [each] * (s in way) for s, on in plan.items()}) for way in ways)

    return goes_on(0, {where.slot: [] for where in places})


def machine(draw: random.Random) -> tuple[list[Want], list[Place]]:
    number = draw.randint(1, 4)
    labels = draw.choice(("abcd", "abcd", "aacd", "aabb"))
    is_cpu = [label not in "ab" and draw.random() < 0.3 for label in labels]
    memory = {label: draw.choice((0, 4, 6, 8, 8, 8)) * GIB for label in labels}
    places = [Place(s, labels[s], 0 if is_cpu[s] else memory[labels[s]], is_cpu[s]) for s in range(number)]
    wants = []
    for name in "vwxyz"[: draw.randint(1, 5)]:
        slots = (
            tuple(sorted(draw.sample(range(number), draw.randint(1, number)))) if draw.random() < 0.4 else (0, 1, 2, 3)
        )
        options = {"x": draw.choice((1, 2))} if draw.random() < 0.3 else {}
        replicas = draw.choice((None, None, None, 1, 2, ALL))
        size, weight, is_stateful = draw.randint(0, 7) * GIB, draw.choice((1.0, 2.0)), draw.random() < 0.1
        wants.append(Want(name, size, slots, replicas, weight, is_stateful, options))
    return wants, places


def check(wants: Sequence[Want], places: Sequence[Place], plan: Mapping[int, Sequence[str]], is_whole: bool) -> None:
    """What must hold of every plan. `is_whole`: all copies are there."""
    by_name = {each.name: each for each in wants}
    served = {where.slot: [by_name[name] for name in plan[where.slot]] for where in places}
    assert holds(served, places)
    assert all(names == [each.name for each in wants if each.name in names] for names in plan.values())
    for each in wants:
        allowed = allowed_of(each, places)
        slots = [slot for slot, names in plan.items() if each.name in names]
        assert {*slots} <= {*allowed}
        is_further = each.replicas is None and not each.is_stateful
        assert len(slots) == copies_of(each, allowed) or (is_further and slots) or (not is_whole and slots)
        for where in [where for where in places if is_further and where.slot in {*allowed} - {*slots}]:
            added = served | {where.slot: [*served[where.slot], each]}
            assert not holds(added, places) or (not where.is_cpu and served[where.slot]), "it is idle"
        shared = [slot for slot in slots if len(served[slot]) > 1]
        assert not is_further or len(shared) <= 1 or all(where.is_cpu for where in places if where.slot in slots)


def walk(module: Any, seed: int) -> str:
    """A machine, and a change of it. Raises AssertionError at a broken promise. Returns how it went."""
    draw, there, outcome = random.Random(seed), {}, ""
    wants, places = machine(draw)
    for _ in range(2):
        allowed = {each.name: allowed_of(each, places) for each in wants}
        choices = [(each, allowed[each.name], copies_of(each, allowed[each.name])) for each in wants]
        most, left_out = module.place_most(wants, places, there)
        try:
            plan = module.place(wants, places, there)
        except module.DoesNotFit:
            assert not all(copies for _, _, copies in choices) or not fits(choices, places)
            check([each for each in wants if each.name not in left_out], places, most, is_whole=False)
            served = {name for where in places for name in there.get(where.slot, ())}
            above: list[Want] = []
            for each in sorted(wants, key=lambda each: (-each.weight, each.name not in served, each.nbytes)):
                does_fit = fits([(one, allowed[one.name], 1) for one in (*above, each)], places)
                assert does_fit == (each.name not in left_out)
                above += [each] * does_fit
            outcome += "refused "
            plan = most
        else:
            assert (most, left_out) == (plan, {})
            check(wants, places, plan, is_whole=True)
            here = {
                each.name: [slot for slot in allowed[each.name] if each.name in there.get(slot, ())] for each in wants
            }
            kept = [(each, here[each.name] if len(here[each.name]) >= n else of, n) for each, of, n in choices]
            if there and fits(kept, places):
                for each, slots, copies in kept:
                    assert sum(each.name in plan[slot] for slot in slots) >= copies, "it moved"
                outcome += "stayed "
            outcome += "placed "
        there = plan
        wants, places = (machine(draw)[0], places) if draw.random() < 0.5 else (wants, places[1:] or places)
    return outcome


def test_random_machines() -> None:
    outcomes = " ".join(walk(placement, seed) for seed in range(SEEDS)).split()
    counts = {word: outcomes.count(word) for word in ("placed", "refused", "stayed")}
    assert min(counts.values()) > 200, counts


@pytest.mark.parametrize(
    ("promise", "old", "new"),
    [
        ("no device has more than its memory", " and want.nbytes <= self._free[where.label]", ""),
        ("options that conflict are apart", "not want.options or", "True or"),
        ("a model is on slots that it allows", "slots = {*want.slots}", "slots = {*self._on}"),
        ("models stay", "here if is_still and", "here if False and"),
        ("a stateful model has one copy", " and not want.is_stateful", ""),
        ("a further copy shares no GPU", "(each.is_cpu or not on)", "True"),
        ("a CPU never stands in for a GPU", "slots & gpus or slots if", "slots if"),
        ("idle places are filled", "if is_idle if is_further else", "if not is_further and"),
        ("what was tried is undone", "self._free[each.label] += want.nbytes", "pass"),
        ("every way is tried", "if self._looks < 0:", "if True:"),
        ("all copies are there", "len(put) == copies and ", ""),
        ("all slots are meant", "max(1, len(allowed)) if", "1 if"),
        ("the least weight is left out", "(-want.weight,", "(want.weight,"),
    ],
)
def test_a_broken_promise_is_noticed(promise: str, old: str, new: str) -> None:
    source = resources.files("pool.plan").joinpath("placement.py").read_text()
    assert source.count(old) == 1
    mutant = ModuleType("pool.plan.placement")
    exec(compile(source.replace(old, new), "placement.py", "exec"), vars(mutant))
    with pytest.raises((AssertionError, KeyError)):
        print(promise, [walk(mutant, seed) for seed in range(SEEDS)])

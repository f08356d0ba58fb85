"""What the workers of a slot have said of its GPUs, and the next one is told."""

from pool.devices import Claims, Device
from pool.wire.device_memory import DeviceHeld, DeviceWait

GPU = Device("gpu", ("A",), "gpu:0", "a card", None)
BOTH = Device("gpu", ("A", "B"), "gpu:0+1", "two cards", None)
CPU = Device("cpu", (), "cpu:0", "cores", None)


def held(pid: int) -> DeviceHeld:
    return DeviceHeld((pid,), False, {})


def wait(
    claims: Claims, slot: int = 0, incarnation: int = 9, *beside: int, must_fit: bool = False
) -> DeviceWait | None:
    return claims.wait(slot, incarnation, beside, must_fit=must_fit)


def pids(claims: Claims, incarnation: int = 9) -> list[int]:
    told = wait(claims, incarnation=incarnation)
    assert told is not None
    return [pid for each in told.former for pid in each.pids]


def test_the_first_worker_is_told_its_gpus_and_who_shares_them() -> None:
    claims = Claims([GPU, BOTH, CPU], 30.0)
    assert wait(claims, 1, 9, 8, must_fit=True) == DeviceWait("gpu:0+1", {"A": 2, "B": 1}, 30.0, must_fit=True)
    alone = wait(claims, 1, must_fit=True)
    assert alone is not None
    assert not alone.must_fit, "who was to be followed has died meanwhile"
    assert wait(claims, 2) is None, "one on the CPU waits for nothing"


def test_without_a_time_nobody_waits() -> None:
    assert wait(Claims([GPU], 0.0)) is None


def test_the_next_one_is_told_what_the_last_one_said_and_not_what_it_says_itself() -> None:
    claims = Claims([GPU, GPU], 30.0)
    claims.said(0, 1, held(11), {1})
    claims.said(0, 1, held(12), {1})
    assert pids(claims) == [12]
    assert pids(claims, 1) == []
    told = wait(claims, 1)
    assert told is not None
    assert told.former == (), "another slot's"


def test_one_that_may_touch_its_gpus_has_seen_the_dead_ones_go() -> None:
    claims = Claims([GPU], 30.0)
    for incarnation in (1, 2):
        claims.said(0, incarnation, held(incarnation), {1, 2})
    assert pids(claims) == [1, 2], "one is beside the other"
    claims.said(0, 3, held(3), {2, 3})
    assert pids(claims) == [2, 3]


def test_the_dead_are_told_from_those_that_live() -> None:
    claims = Claims([GPU], 30.0)
    for incarnation in (1, 2):
        claims.said(0, incarnation, held(incarnation), {1, 2})
    told = wait(claims, 0, 3, 1)
    assert told is not None
    assert (told.former, told.beside) == ((held(2),), (held(1),))

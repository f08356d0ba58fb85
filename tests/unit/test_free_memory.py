"""Whether a device's memory is free of a slot's former worker, and what a worker takes, judged by what NVML tells."""

import pytest

from pool.devices.nvml import Occupancy, Occupant, untold
from pool.wire.codec import pack, unpack
from pool.wire.device_memory import DeviceHeld, DeviceWait
from pool.wire.exits import Exit
from workers.backend import NotFree
from workers.device_memory import footprint, seen
from workers.free_memory import SETTLED_S, Former, Found, Free, Lost, Taken, Untold, Verdict

MIB, GIB = 2**20, 2**30
PID = 4711
U = "GPU-00"


def held(used: float, *occupants: Occupant, uuid: str = U) -> Found:
    """`used` in GiB."""
    return {uuid: Occupancy(int(used * GIB), occupants)}


def mine(used: float | None = 5.9, pid: int = PID, state: str = "S", group: int | None = PID) -> Occupant:
    return Occupant(pid, None if used is None else int(used * GIB), state, group)


STRANGER = Occupant(99, 20 * GIB, "S", 99)


def after(*dead: DeviceHeld, beside: tuple[DeviceHeld, ...] = (), shared_by: int = 1) -> Former:
    """As the next worker knows them: by what they have said, over the wire."""
    wait = DeviceWait("gpu:0", {U: shared_by}, 30.0, dead, beside, must_fit=bool(beside))
    return Former(unpack(DeviceWait, pack(wait)))


def worker(before: Found, *alive: Found, pid: int = PID, former: Former | None = None) -> DeviceHeld:
    """It came to a device as that was before, and looked at it so often."""
    first = former or after()
    held = DeviceHeld((pid,), first.listed, first.level(before))
    for found in alive:
        held = seen(held, found)
    return held


def dead(before: Found, *alive: Found, shared_by: int = 1) -> Former:
    return after(worker(before, *alive), shared_by=shared_by)


def what(verdict: Verdict) -> str:
    assert isinstance(verdict, Taken), verdict
    return f"{verdict.where}: {verdict.what}"


# --- by pid


def test_who_is_in_the_list_is_not_gone() -> None:
    former = dead(held(1), held(7, mine()))
    stuck = former.judge(held(7, mine(state="D")), 0.0)
    assert what(stuck) == f"gpu:0: 5.9 GiB of the former worker (pid {PID}, state D)"
    assert former.judge(held(1), 0.0) == Free()


def test_a_process_that_is_gone_may_hold_memory_nonetheless() -> None:
    former = dead(held(1), held(7, mine()))
    gone = former.judge(held(7, mine(used=None, state="", group=None)), 0.0)
    assert what(gone) == f"gpu:0: memory of the former worker (pid {PID}, which is gone)"


def test_a_child_that_holds_the_device_counts_as_the_worker() -> None:
    former = dead(held(1), held(7, mine(pid=PID + 1)))
    assert former.listed
    assert "pid 4712, state R" in what(former.judge(held(7, mine(pid=PID + 1, state="R")), 0.0))
    # One that was not there when the device was last looked at.
    assert "pid 4713, state S" in what(former.judge(held(7, mine(pid=PID + 2)), 0.0))


def test_where_pids_are_seen_another_process_may_take_all_it_wants() -> None:
    former = dead(held(1), held(7, mine()))
    assert former.judge(held(38, STRANGER), 0.0) == Free()


def test_once_pids_were_seen_they_are_believed_of_a_worker_that_never_came_to_use_its_device() -> None:
    former = after(worker(held(1), pid=PID + 100, former=dead(held(1), held(7, mine()))))
    assert former.judge(held(38, STRANGER), 0.0) == Free()


def test_a_list_that_is_not_told_any_more_is_no_word() -> None:
    former = dead(held(1), held(7, mine()))
    assert former.judge({U: Occupancy(GIB, None, "its processes: Unknown Error")}, 0.0) == Untold(
        "its processes: Unknown Error"
    )


# --- by used bytes: NVML shows no pid of this container's


def test_memory_that_is_back_is_free_and_memory_that_is_not_is_not() -> None:
    former = dead(held(1), held(7))
    assert what(former.judge(held(7), 0.0)) == "gpu:0: 6.0 GiB more in use than before the former worker came"
    assert isinstance(former.judge(held(3), 1.0), Taken), "some of it is still on its way"
    assert former.judge(held(1.25), 2.0) == Free(), "256 MiB are a context of another process"


def test_of_much_memory_a_share_may_stay() -> None:
    former = dead(held(1), held(121))
    assert former.judge(held(6.9), 0.0) == Free()
    assert isinstance(former.judge(held(7.1), 0.0), Taken)


def test_another_process_that_grew_meanwhile_costs_seconds() -> None:
    """4 GiB of the device's 11 are a stranger's, that came after the worker; NVML does not say whose is what."""
    former = dead(held(1), held(7), held(11))
    assert isinstance(former.judge(held(5), 10.0), Taken)
    assert isinstance(former.judge(held(5), 10.0 + SETTLED_S - 0.1), Taken)
    assert former.judge(held(5), 10.0 + SETTLED_S) == Free()


def test_memory_that_still_goes_is_waited_for() -> None:
    former = dead(held(1), held(11))
    for second in range(5):
        assert isinstance(former.judge(held(5 - second * 0.5), float(second * 2)), Taken)


def test_another_process_that_takes_all_that_was_freed_looks_like_the_worker() -> None:
    former = dead(held(1), held(7))
    for second in range(40):
        assert isinstance(former.judge(held(7.5), float(second)), Taken)


def test_a_worker_that_died_before_anybody_looked() -> None:
    assert dead(held(1)).judge(held(1.1), 0.0) == Free()
    former = dead(held(1))
    assert isinstance(former.judge(held(7), 0.0), Taken)
    assert former.judge(held(1), 1.0) == Free()
    # What there was at the first look stands for what it had: most of that has gone, and a stranger has the rest.
    former = dead(held(1))
    assert [type(former.judge(held(used), at)) for used, at in ((7, 0.0), (3, 1.0), (3, 1.0 + SETTLED_S))] == [
        Taken,
        Taken,
        Free,
    ]


def test_pids_of_the_host_are_nobody() -> None:
    """A container in which NVML lists the host's numbers: one of them is the worker's."""
    host = Occupant(1_234_567, 6 * GIB)
    former = dead(held(1), held(7, host))
    assert not former.listed
    assert isinstance(former.judge(held(7, host), 0.0), Taken)
    assert former.judge(held(1), 0.0) == Free()


def test_a_level_that_nobody_took_will_never_be_known() -> None:
    former = dead({U: untold("Timeout")}, held(7))
    assert former.judge(held(1), 0.0) == Untold(
        "the memory in use on gpu:0 before the former worker is not known", lasting=True
    )


def test_the_level_before_an_earlier_worker_is_better_than_none() -> None:
    former = after(worker({U: untold("Timeout")}, held(7), pid=PID + 1, former=dead(held(1), held(7))))
    assert isinstance(former.judge(held(7), 0.0), Taken)
    assert former.judge(held(1), 0.0) == Free()


# --- several slots on a device, several devices in a slot, MIG


def test_of_two_slots_on_a_device_the_other_one_keeps_its_memory() -> None:
    """Both came to an empty device, and each took 6 GiB."""
    former = dead(held(1), held(13), shared_by=2)
    assert isinstance(former.judge(held(13), 0.0), Taken)
    assert isinstance(former.judge(held(7), 1.0), Taken)
    assert former.judge(held(7), 1.0 + SETTLED_S) == Free()


def test_with_pids_the_other_slot_is_no_matter() -> None:
    other = Occupant(5000, 6 * GIB, "S", 5000)
    former = dead(held(1), held(13, mine(), other), shared_by=2)
    assert isinstance(former.judge(held(13, mine(), other), 0.0), Taken)
    assert former.judge(held(7, other), 0.0) == Free()


def test_a_group_is_free_when_all_its_gpus_are() -> None:
    sharers = {"A": 1, "B": 1}
    level = Former(DeviceWait("gpu:0+1", sharers, 30.0)).level({**held(1, uuid="A"), **held(1, uuid="B")})
    both = seen(DeviceHeld((PID,), False, level), {**held(7, mine(), uuid="A"), **held(7, mine(), uuid="B")})
    former = Former(DeviceWait("gpu:0+1", sharers, 30.0, (both,)))
    verdict = former.judge({**held(1, uuid="A"), **held(7, mine(), uuid="B")}, 0.0)
    assert what(verdict) == f"gpu:0+1 (B): 5.9 GiB of the former worker (pid {PID}, state S)"
    assert former.judge({"A": untold("GPU is lost"), **held(1, uuid="B")}, 0.0) == Untold("GPU is lost")
    assert former.judge({**held(1, uuid="A"), **held(1, uuid="B")}, 0.0) == Free()


def test_a_mig_instance_without_a_list_is_judged_by_its_bytes() -> None:
    def told(used: int) -> Found:
        return {U: Occupancy(used * GIB, None, "its processes: Insufficient Permissions")}

    former = dead(told(0), told(4))
    assert isinstance(former.judge(told(4), 0.0), Taken)
    assert former.judge(told(0), 0.0) == Free()


# --- before the first worker of a slot


@pytest.mark.parametrize("found", [held(30, STRANGER), held(0), {U: Occupancy(None, ())}, {U: Occupancy(GIB, None)}])
def test_strangers_are_not_waited_for(found: Found) -> None:
    assert after().judge(found, 0.0) == Free()


def test_an_orphan_of_a_former_pool_is() -> None:
    orphan = Occupant(77, 3 * GIB, "D", 77, orphan=True)
    verdict = after().judge(held(30, STRANGER, orphan), 0.0)
    assert what(verdict) == "gpu:0: 3.0 GiB of a former pool's worker (pid 77, state D)"


def test_nothing_told_is_no_word() -> None:
    assert after().judge({U: untold("GPU is lost")}, 0.0) == Untold("GPU is lost")


# --- what one worker takes


def test_a_worker_is_weighed_by_its_pid_or_by_the_level() -> None:
    by_pid = worker(held(1), held(7, mine()))
    assert footprint(by_pid, held(30, mine(5.5), mine(0.5, pid=PID + 1), STRANGER), {U: 1}) == 6 * GIB
    by_level = worker(held(1))
    assert footprint(by_level, held(7), {U: 1}) == 6 * GIB
    assert footprint(by_level, held(7, mine(used=None)), {U: 1}) == 6 * GIB, "listed, and its bytes are not told"


@pytest.mark.parametrize(
    ("before", "found", "shared_by"),
    [
        (held(1), held(7), 2),
        ({U: untold("Timeout")}, held(7), 1),
        (held(1), held(1), 1),
        (held(1), {U: untold("GPU is lost")}, 1),
    ],
    ids=["others of the pool are there", "no level before", "nothing taken", "not told"],
)
def test_what_cannot_be_told_apart_is_no_footprint(before: Found, found: Found, shared_by: int) -> None:
    assert footprint(worker(before), found, {U: shared_by}) is None


def test_the_footprint_in_a_group_is_that_on_all_its_gpus_or_none() -> None:
    sharers = {U: 1, "GPU-01": 1}
    group = DeviceHeld((PID,), False, Former(DeviceWait("gpu:0+1", sharers, 30.0)).level(held(0)))
    assert footprint(group, {**held(3, mine(3)), **held(2, mine(2), uuid="GPU-01")}, sharers) == 5 * GIB
    assert footprint(group, {**held(3, mine(3)), "GPU-01": untold("GPU is lost")}, sharers) is None


# --- two workers of a slot at once


def no_room(found: Found) -> str:
    with pytest.raises(NotFree) as refused:
        after(beside=(worker(held(1)),)).room(found)
    assert refused.value.status is Exit.NO_ROOM
    return str(refused.value)


def test_there_is_room_for_another_one_where_as_much_is_free_as_its_worker_holds() -> None:
    def beside(used: float, free: float, *others: Occupant) -> Found:
        return {U: Occupancy(int(used * GIB), (mine(used), *others), "", int(free * GIB))}

    former = after(beside=(worker(held(1)),))
    assert former.room(beside(6, 10)) == "gpu:0 has 10.0 GiB free, and its worker holds 6.0 GiB"
    assert former.room(beside(6, 6.7, STRANGER)) == "gpu:0 has 6.7 GiB free, and its worker holds 6.0 GiB"
    assert no_room(beside(6, 6.5)) == "gpu:0 has 6.5 GiB free, and its worker holds 6.0 GiB", "a tenth more"
    assert no_room(beside(1, 1.4)) == "gpu:0 has 1.4 GiB free, and its worker holds 1.0 GiB", "512 MiB more at least"


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({U: untold("GPU is lost")}, "the free memory of gpu:0 is not known: GPU is lost"),
        (
            {U: Occupancy(GIB, (STRANGER,), "", 30 * GIB)},
            "the memory of its worker on gpu:0 is not known: NVML does not list the worker",
        ),
    ],
)
def test_what_is_not_known_is_no_room(found: Found, why: str) -> None:
    assert no_room(found) == why


def test_of_two_workers_at_once_both_are_waited_for() -> None:
    first = worker(held(1), held(7, mine()))
    second = worker({}, held(13, mine(), mine(pid=PID + 1, group=PID + 1)), pid=PID + 1, former=after(beside=(first,)))
    former = after(first, second)
    for left in (PID, PID + 1):
        assert f"pid {left}" in what(former.judge(held(7, mine(pid=left, group=left)), 0.0))
    all_left = held(13, mine(), mine(4.0, pid=PID + 1, group=PID + 1, state=""))
    assert what(former.judge(all_left, 0.0)) == (
        f"gpu:0: 5.9 GiB of the former worker (pid {PID}, state S) and "
        f"4.0 GiB of the former worker (pid {PID + 1}, which is gone)"
    )
    assert former.judge(held(1), 0.0) == Free()


def test_one_that_died_beside_another_is_waited_for_and_the_other_is_not() -> None:
    lives = worker(held(1), held(7, mine()))
    died = worker({}, pid=PID + 1, former=after(beside=(lives,)))
    former = after(died, beside=(lives,))
    left = mine(5, pid=PID + 1, group=PID + 1)
    assert (
        what(former.judge(held(12, mine(), left), 0.0))
        == f"gpu:0: 5.0 GiB of the former worker (pid {PID + 1}, state S)"
    )
    assert former.judge(held(7, mine()), 0.0) == Free()


def test_of_two_that_nvml_does_not_list_nobody_knows_whose_is_what() -> None:
    lives = worker(held(1), held(7))
    former = after(worker({}, pid=PID + 1, former=after(beside=(lives,))), beside=(lives,))
    why = "NVML does not list the workers of gpu:0, and one of them is alive"
    assert former.judge(held(13), 0.0) == Untold(why, lasting=True)


def test_the_level_of_one_that_came_beside_another_is_that_before_both() -> None:
    """NVML shows no pids. The first one left, the second one died, and its memory is still there."""
    first = worker(held(1), held(7))
    second = worker(held(7), held(13), pid=PID + 1, former=after(beside=(first,)))
    assert what(after(second).judge(held(7), 0.0)) == "gpu:0: 6.0 GiB more in use than before the former worker came"


def test_a_device_that_is_gone_is_lost_whatever_it_held() -> None:
    assert dead(held(1)).judge({U: untold("GPU is lost", lost=True)}, 0.0) == Lost("gpu:0", "GPU is lost")

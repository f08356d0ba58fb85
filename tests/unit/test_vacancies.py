"""Who waits for a device, for how long, and what is said of it. The clock and NVML's words are the test's."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import pytest

from pool.core.actions import SeatStandby, SpawnSuccessor, SpawnWorker
from pool.core.events import Death, DeviceTaken, SpawnHeld, SuccessorRefused, WorkerExited
from pool.devices import Device
from pool.devices.lookout import Answer, Lookout
from pool.devices.occupancy import Occupancy, Occupant, untold
from pool.vacancies import ALIVE_LOOK_S, HELD_LOOK_S, LOST_S, UNTOLD_LOOK_S, Step, Vacancies

GIB = 2**30
PID = 4711
GPUS = [Device("gpu", (f"GPU-{n}",), f"gpu:{n}", "H200", 140 * GIB, (n,)) for n in range(2)]
CPU = Device("cpu", (), "cpu:0", "CPU", None)
WORKER = Occupant(PID, 6 * GIB, "D", PID)
TAKEN = "6.0 GiB of the former worker (pid 4711, state D)"


@dataclass
class Script(Lookout):
    """NVML as the test says: `said` is told from then on, None hangs; `late`: what one question is told instead."""

    late: dict[int, Occupancy] = field(default_factory=dict)
    said: dict[str, Occupancy | None] = field(default_factory=dict)
    asked: list[tuple[int, int, Sequence[str]]] = field(default_factory=list)
    questions: int = 0
    running: bool = False

    def ask(self, number: int, slot: int, uuids: Sequence[str]) -> None:
        assert slot not in [other for _, other, _ in self.asked], "one question a slot at a time"
        self.asked.append((number, slot, uuids))
        self.questions += 1
        self.running = True

    @property
    def is_up(self) -> bool:
        return self.running

    @property
    def restless(self) -> bool:
        return False

    def answers(self) -> list[Answer]:
        answers = []
        for number, slot, uuids in list(self.asked):
            late = self.late.pop(number, None)
            found = {uuid: told for uuid in uuids if (told := late or self.said[uuid]) is not None}
            if len(found) == len(uuids):
                answers.append(Answer(number, found))
                self.asked.remove((number, slot, uuids))
        return answers

    def rest(self) -> None:
        assert not self.asked, "it would forget a question"
        self.running = False

    def close(self) -> None:
        self.running = False


class Bench:
    """`Vacancies` and its loop, with a clock that only `until` moves."""

    def __init__(self, devices: Sequence[Device] = GPUS, patience_s: float = 30.0) -> None:
        self.script = Script(said={uuid: held(1) for device in devices for uuid in device.uuids})
        self.vacancies = Vacancies(devices, self.script, patience_s)
        self.now = 100.0

    def say(self, used: float, *occupants: Occupant, uuid: str = "GPU-0") -> None:
        self.script.said[uuid] = held(used, *occupants)

    def hold(self, slot: int = 0, incarnation: int = 1) -> SpawnHeld | None:
        return self.vacancies.hold(SpawnWorker(slot, incarnation), self.now)

    def tend(self) -> list[Step]:
        return list(self.vacancies.tend(self.now))

    def until(self, seconds: float) -> list[Step]:
        """All that happens in that time, as a loop would see it that sleeps as long as it may."""
        end, steps = self.now + seconds, self.tend()
        for _ in range(10_000):
            due = self.vacancies.next_deadline(self.now)
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            steps += self.tend()
            if self.script.asked:
                self.now = min(end, self.now + 0.001)  # NVML takes its time
                steps += self.tend()
        else:
            raise AssertionError("the loop turns without an end")
        self.now = end
        return steps + self.tend()

    def live(self, slot: int = 0, incarnation: int = 1, pid: int = PID) -> None:
        """A worker comes to a free device."""
        self.hold(slot, incarnation)
        assert self.until(0.01) == [SpawnWorker(slot, incarnation)]
        self.vacancies.spawned(slot, pid, self.now)


def held(used: float, *occupants: Occupant) -> Occupancy:
    return Occupancy(int(used * GIB), occupants)


@pytest.fixture
def bench() -> Iterator[Bench]:
    yield (bench := Bench())
    bench.vacancies.close()


def test_nobody_waits_for_a_cpu() -> None:
    bench = Bench([CPU, *GPUS])
    assert bench.hold(0) is None
    assert bench.until(60) == []
    assert bench.script.questions == 0


def test_without_patience_nobody_waits_and_nvml_is_not_asked() -> None:
    bench = Bench(patience_s=0.0)
    assert bench.hold(0) is None
    bench.vacancies.spawned(0, PID, bench.now)
    bench.vacancies.exited(0, PID)
    assert bench.until(60) == []
    assert bench.script.questions == 0


def test_the_first_worker_comes_with_nvmls_first_word(bench: Bench) -> None:
    assert bench.hold() == SpawnHeld(0, 1, "waiting for NVML's word on gpu:0")
    assert bench.tend() == [SpawnWorker(0, 1)]
    assert bench.tend() == []


def test_the_next_worker_comes_when_the_former_one_is_out_of_the_list(bench: Bench) -> None:
    bench.live()
    bench.say(7, WORKER)
    bench.until(ALIVE_LOOK_S)
    bench.vacancies.exited(0, PID)
    bench.hold(incarnation=2)
    assert bench.until(1.0) == [SpawnHeld(0, 2, f"waiting for gpu:0: {TAKEN}")], "said once"
    bench.say(7)
    assert bench.until(HELD_LOOK_S * 1.1) == [SpawnWorker(0, 2)]


def test_what_changes_is_said_again_but_not_every_time(bench: Bench) -> None:
    bench.live()
    bench.say(7, WORKER)
    bench.until(ALIVE_LOOK_S)
    bench.vacancies.exited(0, PID)
    bench.hold(incarnation=2)
    said: list[Step] = []
    for tenth in range(40):
        bench.say(7, Occupant(PID, 6 * GIB - tenth * GIB // 10, "D", PID))
        said += bench.until(0.1)
    assert 3 <= len(said) <= 5


def test_memory_that_never_goes_is_a_death_with_the_reason(bench: Bench) -> None:
    bench.live()
    bench.say(7, WORKER)
    bench.until(ALIVE_LOOK_S)
    bench.vacancies.exited(0, PID)
    bench.hold(incarnation=2)
    assert len(bench.until(29.9)) == 1
    text = f"gpu:0 still has {TAKEN} after 30 s ([health] device_free_timeout)"
    assert bench.until(0.2) == [WorkerExited(0, 2, Death(text, restartable=True))]
    # The next one waits as long for the same.
    bench.hold(incarnation=3)
    assert len(bench.until(29.9)) == 1
    bench.say(1)
    assert bench.until(0.2) == [SpawnWorker(0, 3)]


def test_by_bytes_where_no_pid_is_shown(bench: Bench) -> None:
    bench.live()
    bench.say(7)
    bench.until(10.0)
    assert bench.script.questions in (5, 6)
    bench.vacancies.exited(0, PID)
    bench.hold(incarnation=2)
    text = "waiting for gpu:0: 6.0 GiB more in use than before the former worker came"
    assert bench.until(1.0) == [SpawnHeld(0, 2, text)]
    bench.say(1.1)
    assert bench.until(0.2) == [SpawnWorker(0, 2)]


def test_a_worker_that_was_seen_is_not_looked_at_any_more(bench: Bench) -> None:
    bench.live()
    bench.say(7, WORKER)
    bench.until(ALIVE_LOOK_S * 1.5)
    asked = bench.script.questions
    bench.until(3600.0)
    assert bench.script.questions == asked
    assert bench.vacancies.next_deadline(bench.now) is None
    assert not bench.script.running, "the process that asks is let go"


def test_the_slots_wait_each_for_its_own_device(bench: Bench) -> None:
    bench.live()
    bench.live(1, pid=5000)
    bench.say(7, WORKER)
    bench.until(ALIVE_LOOK_S)
    bench.vacancies.exited(0, PID)
    bench.vacancies.exited(1, PID)
    bench.hold(0, 2)
    bench.hold(1, 2)
    steps = bench.until(1.0)
    assert SpawnWorker(1, 2) in steps
    assert SpawnWorker(0, 2) not in steps


def test_an_answer_from_before_the_death_is_no_word_about_after_it(bench: Bench) -> None:
    """It was asked when the worker had taken nothing yet, and is answered when it is dead."""
    bench.live()
    bench.script.said["GPU-0"] = None
    bench.until(ALIVE_LOOK_S)
    assert bench.script.asked
    bench.vacancies.exited(0, PID)
    bench.hold(incarnation=2)
    bench.script.late[bench.script.asked[0][0]] = held(1)
    bench.say(7, WORKER)
    assert SpawnWorker(0, 2) not in bench.until(1.0)
    assert not bench.script.late


# --- NVML says nothing


def test_an_error_is_waited_out_and_then_the_worker_comes(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.live()
    bench.say(7, WORKER)
    bench.until(ALIVE_LOOK_S)
    bench.vacancies.exited(0, PID)
    bench.script.said["GPU-0"] = untold("GPU is lost")
    bench.hold(incarnation=2)
    before = bench.script.questions
    assert bench.until(29.9) == []
    assert bench.script.questions - before < 30 / UNTOLD_LOOK_S + 2
    with logged(caplog):
        assert bench.until(0.2) == [SpawnWorker(0, 2)]
    assert "that gpu:0 is free of a former worker could not be verified: GPU is lost within 30 s" in caplog.text


def test_a_driver_that_hangs_is_waited_for_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.live()
    bench.say(7, WORKER)
    bench.until(ALIVE_LOOK_S)
    bench.vacancies.exited(0, PID)
    bench.script.said["GPU-0"] = None
    bench.hold(incarnation=2)
    assert bench.until(29.9) == []
    with logged(caplog):
        assert bench.until(0.2) == [SpawnWorker(0, 2)]
    assert "could not be verified: no answer within 30 s" in caplog.text
    bench.vacancies.spawned(0, PID + 1, bench.now)
    bench.until(10.0)
    bench.vacancies.exited(0, PID + 1)
    bench.hold(incarnation=3)
    assert bench.tend() == [SpawnWorker(0, 3)], "the same question is open still"


def test_memory_that_was_seen_is_not_forgotten_because_nvml_falls_silent(bench: Bench) -> None:
    bench.live()
    bench.say(7, WORKER)
    bench.until(ALIVE_LOOK_S)
    bench.vacancies.exited(0, PID)
    bench.hold(incarnation=2)
    bench.until(1.0)
    bench.script.said["GPU-0"] = untold("Timeout")
    [step] = bench.until(29.5)
    assert isinstance(step, WorkerExited)
    assert TAKEN in step.death.text


def test_who_never_told_anything_is_not_waited_for(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.script.said["GPU-0"] = untold("No module named 'pynvml'")
    bench.hold()
    with logged(caplog):
        assert bench.tend() == [SpawnWorker(0, 1)]
    assert "No module named 'pynvml'" in caplog.text
    bench.vacancies.spawned(0, PID, bench.now)
    bench.until(60.0)
    assert bench.script.questions == 1
    bench.vacancies.exited(0, PID)
    bench.hold(incarnation=2)
    assert bench.tend() == [SpawnWorker(0, 2)]


def test_a_level_that_is_not_known_is_not_waited_for(bench: Bench) -> None:
    """NVML hung when the worker came, tells again now, and shows no pids."""
    bench.script.said["GPU-0"] = None
    bench.hold()
    assert bench.until(30.1) == [SpawnWorker(0, 1)]
    bench.vacancies.spawned(0, PID, bench.now)
    bench.say(7)
    bench.until(10.0)
    bench.vacancies.exited(0, PID)
    bench.hold(incarnation=2)
    assert bench.tend() == [SpawnWorker(0, 2)]


# --- it is not wanted any more


def test_one_that_waits_can_be_called_off(bench: Bench) -> None:
    bench.live()
    bench.say(7, WORKER)
    bench.until(ALIVE_LOOK_S)
    bench.vacancies.exited(0, PID)
    bench.hold(incarnation=2)
    bench.until(1.0)
    assert not bench.vacancies.cancel(0, 1), "another incarnation"
    assert not bench.vacancies.cancel(1, 2)
    assert bench.vacancies.cancel(0, 2)
    assert not bench.vacancies.cancel(0, 2)
    assert bench.until(60.0) == []
    # What the former worker holds is remembered.
    bench.hold(incarnation=3)
    assert bench.until(1.0) == [SpawnHeld(0, 3, f"waiting for gpu:0: {TAKEN}")]


def test_a_spawn_that_failed_leaves_the_seat_as_it_was(bench: Bench) -> None:
    bench.live()
    bench.say(7, WORKER)
    bench.until(ALIVE_LOOK_S)
    bench.vacancies.exited(0, PID)
    bench.say(1)
    bench.hold(incarnation=2)
    assert bench.tend() == [SpawnWorker(0, 2)]  # and there is no process left on the machine
    bench.hold(incarnation=3)
    assert bench.tend() == [SpawnWorker(0, 3)]


def logged(caplog: pytest.LogCaptureFixture) -> AbstractContextManager[None]:
    return caplog.at_level("WARNING", "pool.worker")


# --- a second one beside the first --------------------------------------------------------------------------------


def follow(bench: Bench, slot: int = 0, must_fit: bool = True) -> SpawnHeld | SuccessorRefused | None:
    return bench.vacancies.hold(SpawnSuccessor(slot, 2, must_fit), bench.now)


def roomy(used: float, free: float, *occupants: Occupant) -> Occupancy:
    return Occupancy(int(used * GIB), occupants, "", int(free * GIB))


def lives(bench: Bench, occupancy: Occupancy) -> None:
    bench.live()
    bench.script.said["GPU-0"] = occupancy


@pytest.mark.parametrize(("free", "fits"), [(6.7, True), (6.5, False), (100.0, True), (0.0, False)])
def test_a_successor_comes_where_as_much_is_free_as_the_worker_holds_and_a_margin(
    bench: Bench, free: float, fits: bool
) -> None:
    lives(bench, roomy(7, free, WORKER))
    assert follow(bench) == SpawnHeld(0, 2, "waiting for NVML's word on gpu:0")
    text = f"gpu:0 has {f'{free:.1f} GiB' if free else '0 MiB'} free, and its worker holds 6.0 GiB"
    assert bench.until(0.1) == [SpawnSuccessor(0, 2, True) if fits else SuccessorRefused(0, 2, text)]
    assert bench.vacancies.next_deadline(bench.now) is None, "nothing is awaited"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (roomy(7, 90), "what its worker holds of gpu:0 is not known: NVML does not list it"),
        (roomy(7, 90, Occupant(PID, None)), "what its worker holds of gpu:0 is not known: NVML does not list it"),
        (roomy(7, 90, Occupant(99, 6 * GIB)), "what its worker holds of gpu:0 is not known: NVML does not list it"),
        (
            Occupancy(None, (WORKER,), "its used memory: Lost"),
            "what gpu:0 has free is not known: its used memory: Lost",
        ),
        (untold("Driver Not Loaded"), "what gpu:0 has free is not known: Driver Not Loaded"),
    ],
)
def test_what_is_not_known_to_fit_does_not(bench: Bench, told: Occupancy, why: str) -> None:
    lives(bench, told)
    follow(bench)
    assert bench.until(0.1) == [SuccessorRefused(0, 2, why)]


def test_a_driver_that_hangs_refuses_in_time(bench: Bench) -> None:
    lives(bench, roomy(7, 90, WORKER))
    bench.script.said["GPU-0"] = None
    follow(bench)
    assert bench.until(29.9) == []
    assert bench.until(0.2) == [SuccessorRefused(0, 2, "NVML: no answer within 30 s")]


def test_where_nvml_is_not_asked_there_is_no_room() -> None:
    bench = Bench(patience_s=0.0)
    why = 'NVML is not asked ([health] device_free_timeout is "0s")'
    assert follow(bench) == SuccessorRefused(0, 2, why)
    assert follow(bench, must_fit=False) is None


def test_on_a_cpu_there_is_room_and_where_it_is_always_wanted() -> None:
    bench = Bench([CPU, *GPUS])
    assert follow(bench, 0) is None
    assert follow(bench, 1, must_fit=False) is None
    assert bench.script.questions == 0


def test_one_that_waits_for_room_can_be_called_off(bench: Bench) -> None:
    lives(bench, roomy(7, 90, WORKER))
    follow(bench)
    assert not bench.vacancies.cancel(0, 1)
    assert bench.vacancies.cancel(0, 2)
    assert bench.until(60.0) == []


def test_after_both_are_gone_the_memory_of_both_is_waited_for(bench: Bench) -> None:
    second = Occupant(PID + 1, 5 * GIB, "S", PID + 1)
    lives(bench, roomy(7, 90, WORKER))
    follow(bench)
    assert bench.until(0.1) == [SpawnSuccessor(0, 2, True)]
    bench.vacancies.spawned(0, PID + 1, bench.now)
    bench.say(12, WORKER, second)
    bench.until(ALIVE_LOOK_S)
    bench.vacancies.exited(0, PID)
    bench.vacancies.exited(0, PID + 1)
    bench.say(6, second)
    bench.hold(incarnation=3)
    assert "pid 4712" in str(bench.until(1.0))
    bench.say(7, WORKER)
    assert bench.until(1.0)[-1] != SpawnWorker(0, 3), "the first one may be stuck in the kernel"
    bench.say(1)
    assert bench.until(1.0) == [SpawnWorker(0, 3)]


# --- what a worker takes


def test_a_worker_is_weighed_once_by_what_is_told_from_then_on(bench: Bench) -> None:
    bench.live()
    bench.say(3, Occupant(PID, 2 * GIB, "S", PID))
    bench.until(10)
    assert bench.vacancies.weighed() == []
    questions = bench.script.questions
    bench.say(7, Occupant(PID, 6 * GIB, "S", PID))
    bench.vacancies.weigh(0, bench.now)
    assert bench.until(10) == []
    assert bench.script.questions == questions + 1
    assert bench.vacancies.weighed() == [(0, 6 * GIB)]
    assert bench.vacancies.weighed() == []


def test_an_answer_to_an_older_question_weighs_nobody(bench: Bench) -> None:
    bench.live()
    bench.script.said["GPU-0"] = None
    bench.until(ALIVE_LOOK_S + 0.1)
    (question,) = bench.script.asked
    bench.vacancies.weigh(0, bench.now)
    bench.script.late[question[0]] = held(3, Occupant(PID, 2 * GIB, "S", PID))
    bench.say(7, Occupant(PID, 6 * GIB, "S", PID))
    bench.until(ALIVE_LOOK_S + 0.1)
    assert bench.vacancies.weighed() == [(0, 6 * GIB)]


def test_who_died_or_has_another_beside_it_is_not_weighed(bench: Bench) -> None:
    bench.live()
    bench.vacancies.weigh(0, bench.now)
    bench.vacancies.exited(0, PID)
    bench.until(10)
    bench.live(1)
    bench.vacancies.spawned(1, PID + 1, bench.now)
    bench.vacancies.weigh(1, bench.now)
    bench.until(10)
    bench.vacancies.weigh(7, bench.now)
    assert bench.vacancies.weighed() == []


# --- a device that is gone

GONE = untold("GPU is lost", lost=True)


def test_a_device_that_stays_gone_ends_the_slot_with_nvmls_word(bench: Bench) -> None:
    bench.live()
    bench.vacancies.exited(0, PID)
    bench.script.said["GPU-0"] = GONE
    bench.hold(incarnation=2)
    waiting = SpawnHeld(0, 2, "waiting for gpu:0, which is gone: GPU is lost")
    assert bench.until(LOST_S - 0.1) == [waiting]
    assert bench.vacancies.lost(0) is None
    death = Death("gpu:0 is gone: GPU is lost", restartable=False)
    assert bench.until(UNTOLD_LOOK_S + 0.2) == [WorkerExited(0, 2, death)]
    assert bench.vacancies.lost(0) == "GPU is lost"
    assert bench.until(60) == []
    # Somebody has put it back.
    bench.say(1)
    bench.hold(incarnation=3)
    assert bench.until(1) == [SpawnWorker(0, 3)]
    bench.vacancies.spawned(0, PID + 1, bench.now)
    assert bench.vacancies.lost(0) is None


def test_a_device_that_is_reset_is_waited_for(bench: Bench) -> None:
    bench.script.said["GPU-0"] = GONE
    bench.hold()
    bench.until(LOST_S - 1)
    bench.say(1)
    assert bench.until(UNTOLD_LOOK_S + 0.1) == [SpawnWorker(0, 1)]


def test_no_longer_than_there_is_patience(bench: Bench) -> None:
    bench.vacancies.adopt(2.0)
    bench.script.said["GPU-0"] = GONE
    bench.hold()
    (_, exited) = bench.until(2.1)
    assert exited == WorkerExited(0, 1, Death("gpu:0 is gone: GPU is lost", restartable=False))


def test_a_standby_gets_no_device_that_is_gone_and_no_successor_comes(bench: Bench) -> None:
    bench.live()
    bench.vacancies.exited(0, PID)
    bench.script.said["GPU-0"] = GONE
    assert bench.vacancies.hold(SeatStandby(0, 2), bench.now) is not None
    (_, taken) = bench.until(LOST_S + UNTOLD_LOOK_S)
    assert taken == DeviceTaken(0, 2, "gpu:0 is gone: GPU is lost")
    bench.live(1)
    bench.script.said["GPU-1"] = GONE
    bench.vacancies.hold(SpawnSuccessor(1, 2, must_fit=True), bench.now)
    (refused,) = bench.until(1)
    assert isinstance(refused, SuccessorRefused)
    assert refused.why == "what gpu:1 has free is not known: GPU is lost"


def test_one_of_a_group_is_enough() -> None:
    bench = Bench([Device("gpu", ("GPU-0", "GPU-1"), "gpu:0+1", "H200 + H200", None, (0, 1))])
    bench.script.said["GPU-1"] = GONE
    bench.hold()
    (_, exited) = bench.until(LOST_S + UNTOLD_LOOK_S)
    assert isinstance(exited, WorkerExited)
    assert exited.death.text == "gpu:0+1 (GPU-1) is gone: GPU is lost"
    bench.vacancies.close()

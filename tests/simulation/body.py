"""A body without sockets and processes: it does what the core wants done, and workers do what a test tells them to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from simulation.ledger import Ledger, Payload

from pool.core import actions as do
from pool.core import events as told
from pool.core.machine import Machine
from pool.wire.signatures import ModelInfo

__all__ = ["Body", "Worker"]

SIGSEGV = told.Death("SIGSEGV", restartable=True)
SIGKILL = told.Death("SIGKILL", restartable=True)
STOPPED = told.Death("exit status 0", restartable=True)
HOPELESS = told.Death("exit status 4", restartable=False)


@dataclass(slots=True, eq=False)
class Worker:
    """A process as the body knows it. `running`: by batch, the serials of its payloads."""

    slot: int
    incarnation: int
    helloed: bool = False
    welcomed: bool = False
    ready: bool = False
    told_to_stop: bool = False
    killed: bool = False
    running: dict[int, tuple[int, ...]] = field(default_factory=dict)


class Body:
    """Every event passes the ledger, and the core's own books where `validates` is set."""

    def __init__(
        self, machine: Machine, placement: Sequence[Sequence[str]], stateful: frozenset[str], validates: bool
    ) -> None:
        policy = machine.policy
        self.machine = machine
        self.ledger = Ledger(policy.max_attempts, policy.kill_timeout_s, policy.default_timeout_s)
        self.now = 1000.0
        self.handled = 0
        self.spawn_fails = False
        self.workers: dict[tuple[int, int], Worker] = {}
        self._validates = validates
        self._infos = [tuple(ModelInfo(name, "", {}, name in stateful) for name in models) for models in placement]

    def feed(self, event: told.Event) -> None:
        actions = self.machine.handle(event, self.now)
        self.handled += 1
        self.ledger.check(event, actions, self.now)
        if self._validates:
            self.machine.validate()
        for action in actions:
            self._do(action)

    def pass_time(self, seconds: float) -> None:
        """Ticks at each deadline of the core on the way, as the real loop does."""
        end = self.now + seconds
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.feed(told.Tick())
        self.now = end
        self.feed(told.Tick())

    # --- clients --------------------------------------------------------------------------------------------------

    def submit(self, client: bytes, number: int, model: str, timeout_s: float | None, size_bytes: int) -> None:
        payload = Payload(len(self.ledger.records))
        self.feed(told.JobArrived(client, number, model, timeout_s, size_bytes, payload))

    # --- workers --------------------------------------------------------------------------------------------------

    def hello(self, worker: Worker) -> None:
        worker.helloed = True
        self.feed(told.WorkerHello(worker.slot, worker.incarnation))

    def say_ready(self, worker: Worker, lanes: int, models: int | None = None) -> None:
        worker.ready = True
        infos = self._infos[worker.slot][:models]
        self.feed(told.WorkerReady(worker.slot, worker.incarnation, lanes, infos))

    def answer(self, worker: Worker, batch: int, outcomes: tuple[told.Outcome, ...] | None = None) -> None:
        """Each part with the serial of its payload, unless told otherwise."""
        serials = worker.running.pop(batch)
        if outcomes is None:
            outcomes = tuple(told.Succeeded(serial) for serial in serials)
        self.feed(told.BatchDone(worker.slot, worker.incarnation, batch, outcomes))

    def exit(self, worker: Worker, death: told.Death) -> None:
        del self.workers[(worker.slot, worker.incarnation)]
        self.feed(told.WorkerExited(worker.slot, worker.incarnation, SIGKILL if worker.killed else death))

    # --- actions --------------------------------------------------------------------------------------------------

    def _do(self, action: do.Action) -> None:
        match action:
            case do.SpawnWorker(slot, incarnation):
                if self.spawn_fails:
                    self.feed(told.WorkerExited(slot, incarnation, told.Death("cannot be spawned", restartable=True)))
                    return
                self.workers[(slot, incarnation)] = Worker(slot, incarnation)
                self.feed(told.WorkerSpawned(slot, incarnation, pid=10_000 + slot))
                self.spawned(self.workers[(slot, incarnation)])
            case do.WelcomeWorker(slot, incarnation):
                self.workers[(slot, incarnation)].welcomed = True
            case do.RunBatch():
                worker = self.workers[(action.slot, action.incarnation)]
                worker.running[action.batch] = tuple(
                    payload.serial for payload in action.payloads if isinstance(payload, Payload)
                )
                self.sent(worker, action.batch)
            case do.StopWorker(slot, incarnation):
                self.workers[(slot, incarnation)].told_to_stop = True
                self.stopping(self.workers[(slot, incarnation)])
            case do.KillWorker(slot, incarnation):
                self.workers[(slot, incarnation)].killed = True
                self.stopping(self.workers[(slot, incarnation)])

    def spawned(self, worker: Worker) -> None:
        """A worker began. For those who give the workers a life of their own."""

    def sent(self, worker: Worker, batch: int) -> None:
        """A lane got its batch."""

    def stopping(self, worker: Worker) -> None:
        """The worker was told to stop, or SIGKILL was sent."""

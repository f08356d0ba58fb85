"""What the core decides by: values with their units, and where each comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pool.core.versions import Versions
from pool.wire.independence import Batching
from pool.wire.phases import Phase

__all__ = ["AccountPolicy", "ModelPolicy", "Policy", "SlotPlan"]


DEVICE_WORDS_S = 2.0  # a worker that waits for its device ends by itself, with the reason; one that hangs does not
HUNG_FACTOR = 10  # times the slowest batch of the kind seen of late


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """A slot as the placement made it: which models its workers load. One without models is never started.

    `device` is its device's name in `pool status`; `names` are all the names by which a job may ask for the slot.
    `versions`: the number of each model that has one.
    """

    models: tuple[str, ...]
    device: str = ""
    names: frozenset[str] = frozenset()
    versions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelPolicy:
    """How the jobs of one model are scheduled; but for `batching` the defaults are the configuration's."""

    max_batch: int = 32  # rows
    batch_wait_s: float = 0.0  # how long a job may wait for company while a lane is idle
    allowed_batch_sizes: tuple[int, ...] = ()  # rising, the last one is `max_batch`; empty: any size
    weight: float = 1.0  # its share of the time of a device that it shares, against the others' weights
    max_jobs: int | None = None  # None: only the pool's bound
    max_bytes: int | None = None
    batching: Batching = Batching.ALWAYS  # whoever makes a policy by hand knows the model

    def padded(self, rows: int) -> int:
        """How many rows are fed for so many."""
        return next((size for size in self.allowed_batch_sizes if size >= rows), rows)


KEY, TOKEN = "key:", "token:"
"""What the accounts begin with of those who have a name of their own, and no `[[client]]`."""


@dataclass(frozen=True, slots=True)
class AccountPolicy:
    """What the connections of one client may together; None: only the pool's bounds."""

    weight: float = 1.0  # its share of the time of each model's devices, against the others' weights
    max_jobs: int | None = None
    max_bytes: int | None = None
    rate: float | None = None  # jobs a second

    @property
    def burst(self) -> float:
        """Jobs that may come at once: a second's worth."""
        return 0.0 if self.rate is None else max(1.0, self.rate)


@dataclass(frozen=True, slots=True)
class Policy:
    """The part of the configuration that the core reads; defaults are the configuration's."""

    max_jobs: int = 10_000
    max_bytes: int = 2 << 30
    client_max_jobs: int | None = None  # None: a share of what is free, so that there is always room for another client
    client_max_bytes: int | None = None
    default_timeout_s: float = 60.0
    max_attempts: int = 2
    restart_intensity: int = 5
    restart_period_s: float = 60.0
    backoff_max_s: float = 30.0
    backoff_first_s: float = 0.1  # a worker that died once is wanted back at once
    replacement: Literal["auto", "always", "off"] = "auto"  # auto: where the device has room for two workers
    import_timeout_s: float = 120.0
    load_timeout_s: float = 600.0
    warmup_timeout_s: float = 900.0
    device_free_timeout_s: float = 30.0  # for what a dead worker leaves on its device; 0: it is not waited for
    hung_after_s: float | None = None  # None: as `batch_budget_s` finds
    hung_floor_s: float = 60.0
    silent_after_s: float | None = None  # an idle worker that does not beat for so long is stuck; None: not judged
    drain_timeout_s: float = 30.0
    stop_timeout_s: float = 5.0  # an idle worker exits in milliseconds; after this it is killed
    kill_timeout_s: float = 10.0  # SIGKILL is immediate unless the process is stuck in the kernel (D state)
    ready_needs_all: bool = True
    standby: bool = False  # a second process a slot, imported and without a device, that follows who dies
    min_ready: int = 1  # slots of a model that stay READY while another is recycled, or rolled without a replacement
    recycle_age_s: float | None = None  # a worker that is older, or has done more jobs, or holds more memory, is
    recycle_jobs: int | None = None  # replaced; None: for no such reason
    recycle_bytes: int | None = None
    accounts: Mapping[str, AccountPolicy] = field(default_factory=dict)  # see `account`
    models: Mapping[str, ModelPolicy] = field(default_factory=dict)  # those that are not in it have the defaults
    versions: Mapping[str, Versions] = field(default_factory=dict)  # of models of which several are served at once
    unloadable: Mapping[str, str] = field(default_factory=dict)  # models that no slot has for this reason

    def account(self, name: str) -> AccountPolicy | None:
        """None: it is of many programs, each of whose connections is a client by itself."""
        policy = self.accounts.get(name)
        return AccountPolicy() if policy is None and name.startswith((KEY, TOKEN)) else policy

    def model(self, name: str) -> ModelPolicy:
        return self.models.get(name, ModelPolicy())

    @property
    def longest_stop_s(self) -> float:
        """How long the pool's end takes at most, from the asking to the last exit."""
        return self.drain_timeout_s + self.stop_timeout_s + self.kill_timeout_s

    @property
    def patient_pause_s(self) -> float:
        """Between two tries of what has failed for a reason that is not likely to go away soon."""
        return max(self.backoff_max_s, self.restart_period_s)

    def longest_start_s(self, models: int) -> float:
        """How long a worker of so many models takes at most until it is READY, the waiting before it included."""
        before_s = self.backoff_max_s + self.device_free_timeout_s
        return before_s + self.import_timeout_s + models * (self.load_timeout_s + self.warmup_timeout_s)

    def phase_budget_s(self, phase: Phase) -> float | None:
        """How long a worker may stay in a phase; None where each batch has its own budget, or nothing is waited for."""
        return {
            Phase.IMPORTING: self.import_timeout_s,
            Phase.AWAITING_DEVICE: self.device_free_timeout_s + DEVICE_WORDS_S,
            Phase.LOADING: self.load_timeout_s,
            Phase.WARMING_UP: self.warmup_timeout_s,
            Phase.SERVING: None,
            Phase.STANDING_BY: None,
        }[phase]

    def phase_setting(self, phase: Phase) -> str:
        """The configuration key that sets the phase's budget."""
        return {
            Phase.IMPORTING: "[health] import_timeout",
            Phase.AWAITING_DEVICE: "[health] device_free_timeout",
            Phase.LOADING: "[health] load_timeout",
            Phase.WARMING_UP: "[health] warmup_timeout",
            Phase.SERVING: "[health] hung_after",
            Phase.STANDING_BY: "[pool] standby",
        }[phase]

    def batch_budget_s(self, longest_timeout_s: float, slowest_s: float) -> float:
        """How long a batch may run before its worker counts as hung; `slowest_s` is what its like have taken."""
        if self.hung_after_s is not None:
            return self.hung_after_s
        budget_s = self.hung_floor_s if self.hung_floor_s > longest_timeout_s else longest_timeout_s
        return budget_s if budget_s > HUNG_FACTOR * slowest_s else HUNG_FACTOR * slowest_s

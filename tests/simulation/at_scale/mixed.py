"""Everything at once: five kinds of models, ten kinds of clients, bad jobs, bad weather."""

from collections.abc import Callable, Sequence

from pool.core.policy import ModelPolicy, Policy
from simulation.at_scale.clients import Bursty, Client, Closed, Poisson, Wish, choices
from simulation.at_scale.workers import Truth, Weather
from simulation.at_scale.world import World

__all__ = ["ROUGH", "run_mixed"]

ROUGH = Weather(
    crash=1 / 400,
    stall=1 / 1000,
    unsent=1 / 2000,
    stillborn=0.15,
    boot_s=(0.2, 1.0),
    slow_start=0.2,
    unseen_s=0.02,
    late_answers=0.3,
)
TRUTHS = {
    "steady": Truth(0.010, 0.0005, 0.1, outliers=200),
    "greedy": Truth(0.005, 0.0020, 0.1, fits=lambda now: 12 if now // 20 % 2 else 64),  # others come and go beside it
    "whole": Truth(0.020, 0.0, 0.1, rows=False),
    "stateful": Truth(0.010, 0.0010, 0.1, stateful=True),
    "liar": Truth(0.010, 0.0010, 0.1, loses_rows=True),
}
PLACEMENT = (
    ("steady", "greedy"),
    ("steady", "greedy", "whole"),
    ("whole", "stateful", "liar"),
    ("steady", "greedy", "whole", "stateful", "liar"),
)


def run_mixed(
    *, seed: int, jobs: int, slots: int, rate: float, loop_late_s: float = 0.0, validate_every: int = 0
) -> World:
    """So many jobs over so many slots, to their end; `rate` is jobs a second of all clients together."""
    policy = Policy(
        max_jobs=250 * slots,
        default_timeout_s=20.0,
        hung_after_s=2.0,
        restart_intensity=1_000_000,
        backoff_max_s=1.0,
        models={
            "steady": ModelPolicy(max_batch=16, batch_wait_s=0.01),
            "greedy": ModelPolicy(max_batch=32, allowed_batch_sizes=(1, 4, 8, 32)),
        },
    )
    placement = [PLACEMENT[number % len(PLACEMENT)] for number in range(slots)]
    world = World(
        placement,
        TRUTHS,
        policy,
        seed=seed,
        weather=ROUGH,
        loop_late_s=loop_late_s,
        validate_every=validate_every,
    )
    clients = _clients(world, jobs // 10, rate / 10)
    for client in clients:
        client.start()
    world.run_until(_all_asked(clients))
    world.finish()
    return world


def _clients(world: World, jobs: int, rate: float) -> list[Client]:
    rows = choices(1, 1, 2, 5, 40)
    any_job = [Wish(model, choices(0) if model == "whole" else rows, guilty=0.01, poison=0.0005) for model in TRUTHS]
    batched = [model for model in TRUTHS if model != "whole"]
    pinned = [Wish(model, device=device) for model in ("steady", "greedy") for device in ("gpu:0", "slot:1")]
    return [
        Poisson(world, "polite", any_job, jobs, rate=rate),
        Poisson(world, "fickle", any_job, jobs, rate=rate, cancels=3),
        Poisson(world, "vanishing", any_job, jobs, rate=rate, vanishes=50),
        Poisson(world, "hurried", [Wish(model, timeout_s=0.06) for model in batched], jobs, rate=rate),
        Poisson(world, "urgent", [Wish(model, priority=10) for model in batched], jobs, rate=rate),
        Poisson(world, "pinned", pinned, jobs, rate=rate),
        Bursty(world, "bursty", any_job, jobs, size=30, bursts=rate / 30),
        Bursty(world, "very bursty", any_job, jobs, size=100, bursts=rate / 100),
        Closed(world, "flooding", any_job, jobs, in_flight=25 * len(world.placement)),
        Closed(world, "slow", any_job, jobs, in_flight=20, think_s=20 / rate),
    ]


def _all_asked(clients: Sequence[Client]) -> Callable[[], bool]:
    waiting = list(clients)

    def over() -> bool:
        while waiting and not waiting[-1].left:
            waiting.pop()
        return not waiting

    return over

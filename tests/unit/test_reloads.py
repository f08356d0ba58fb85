"""What of a changed file a running pool takes."""

from pathlib import Path

import pytest
from fakes import pynvml

from pool.config import Settings, parse_settings
from pool.devices import discover_gpus
from pool.errors import InvalidConfig
from pool.plan import make_plan
from pool.reloads import Reloaded, Source, compare


def settings(*models: dict[str, object], **sections: object) -> Settings:
    data = {
        "pool": {"devices": [0, "cpu"]},
        "model": [{"path": "stub:echo", "devices": "all", **model} for model in models],
        **sections,
    }
    return parse_settings(data, "f.toml", Path("/base"))


def reloaded(before: Settings, after: Settings) -> Reloaded:
    running = make_plan(before, {}, discover_gpus(pynvml))  # type: ignore[arg-type]
    return compare(Source("f.toml", before, lambda: after), before, running, {})


def rolled(before: Settings, after: Settings) -> list[bool]:
    """Of each slot, whether its worker is told something else."""
    running = make_plan(before, {}, discover_gpus(pynvml))  # type: ignore[arg-type]
    plan = reloaded(before, after).plan
    return [plan.welcome(slot) != running.welcome(slot) for slot in range(len(plan.shares))]


def test_an_override_that_changes_reaches_the_workers_that_it_concerns() -> None:
    before = settings({"name": "a"})
    device = [{"use": 0, "session": {"allow_growth": False}}]
    assert rolled(before, settings({"name": "a"}, device=device)) == [True, False]
    assert rolled(settings({"name": "a"}, device=device), before) == [True, False]
    assert rolled(before, settings({"name": "a", "session": {"jit": True}})) == [True, True]
    apart = {"name": "a", "session": {"intra_op_parallelism_threads": 1}}, {"name": "b"}
    more = {"name": "a", "session": {"intra_op_parallelism_threads": 2}}, {"name": "b"}
    assert rolled(settings(*apart), settings(*more)) == [True, False, True, False]


def test_models_in_another_order_stay_where_they_are() -> None:
    one, other = {"name": "a", "session": {"intra_op_parallelism_threads": 1}}, {"name": "b"}
    assert rolled(settings(one, other), settings(other, one)) == [False] * 4


@pytest.mark.parametrize("section", [{}, {"device": [{"use": 0, "session": {"inter_op_parallelism_threads": 2}}]}])
def test_models_that_come_to_need_workers_of_their_own_take_a_new_pool(section: dict[str, object]) -> None:
    before = settings({"name": "a"}, {"name": "b"})
    after = settings({"name": "a", "session": {"inter_op_parallelism_threads": 1}}, {"name": "b"}, **section)
    with pytest.raises(InvalidConfig) as caught:
        reloaded(before, after)
    lines = str(caught.value).splitlines()
    assert any(line.startswith('f.toml: [[model]] a session: {} → {"inter_op_') for line in lines)
    assert all(line.endswith("(a model would move to another slot)") for line in lines)
    assert len(lines) == 1 + len(section)


def test_what_cannot_be_met_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="placement names /gpu:3"):
        reloaded(settings({"name": "a"}), settings({"name": "a", "placement": [{"layers": "x", "device": "/gpu:3"}]}))

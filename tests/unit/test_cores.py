"""Which cores each CPU worker is to have."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.devices.cores import core_list, in_order, share_cores, written
from pool.errors import InvalidConfig

NOWHERE = Path("/nowhere")


def machine(folder: Path, nodes: Mapping[int, str], siblings: int) -> Path:
    """A /sys of two sockets; thread N and thread N + `siblings` are one core."""
    for node, cores in nodes.items():
        (folder / f"node/node{node}").mkdir(parents=True)
        (folder / f"node/node{node}/cpulist").write_text(f"{cores}\n")
        for core in core_list(cores) if cores else ():
            topology = folder / f"cpu/cpu{core}/topology"
            topology.mkdir(parents=True)
            (topology / "physical_package_id").write_text(f"{node % 2}\n")
            (topology / "core_id").write_text(f"{core % siblings}\n")
    return folder


@pytest.mark.parametrize(
    ("text", "cores"), [("0", (0,)), ("0-3,8", (0, 1, 2, 3, 8)), ("5, 1-2,2", (1, 2, 5)), ("07", (7,))]
)
def test_a_list_is_read_as_the_kernel_writes_it(text: str, cores: tuple[int, ...]) -> None:
    assert core_list(text) == cores


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "0x1", "1-2-3", "0-99999999", "²"])
def test_what_is_no_list_of_cores_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a list of cores"):
        core_list(text)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_what_is_written_reads_the_same(cores: set[int]) -> None:
    assert core_list(written(sorted(cores))) == tuple(sorted(cores))


def test_nodes_stay_together_and_siblings_in_them(tmp_path: Path) -> None:
    system = machine(tmp_path, {0: "0,2,4,6", 1: "1,3,5,7", 2: ""}, siblings=4)
    assert in_order(range(8), system) == (0, 4, 2, 6, 1, 5, 3, 7)
    assert share_cores(2, "auto", range(8), system) == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert share_cores(4, "auto", range(8), system) == ((0, 4), (2, 6), (1, 5), (3, 7))


def test_a_kernel_that_says_nothing_is_no_trouble() -> None:
    assert in_order({3, 1, 2}, NOWHERE) == (1, 2, 3)


@given(st.sets(st.integers(0, 63), min_size=1, max_size=20), st.integers(1, 30))
def test_the_shares_are_alike_and_leave_nothing_out(cores: set[int], slots: int) -> None:
    shares = share_cores(slots, "auto", cores, NOWHERE)
    sizes = {len(share) for share in shares}
    assert len(shares) == slots
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    if slots <= len(cores):
        assert sorted(core for share in shares for core in share) == sorted(cores)
    else:
        assert {core for share in shares for core in share} == cores


def test_nobody_is_bound_unless_it_is_asked_for() -> None:
    assert share_cores(2, "off", {0, 1}) == ((), ())
    assert share_cores(0, "auto", {0, 1}) == ()


def test_lists_are_taken_as_they_are() -> None:
    assert share_cores(2, ((0, 1), (1,)), {0, 1, 2}) == ((0, 1), (1,))


@pytest.mark.parametrize(
    ("slots", "told"),
    [
        (3, '2 lists of cores for 3 CPU slots; write one list for each, or "auto"'),
        (2, "'1-2,7' has cores that the pool may not use: 2,7; it may use 0-1"),
    ],
)
def test_lists_that_do_not_fit_the_machine_are_refused(slots: int, told: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        share_cores(slots, ((0,), (1, 2, 7)), {0, 1})
    assert str(caught.value) == f"[pool] cpu_affinity: {told}"

"""What is owed to a client, and until when the memory of its jobs is somebody else's to use."""

import pytest

from pool.router.arenas import Tenancy
from pool.router.debts import Debts

ONE, OTHER = b"one", b"other"


class Ended:
    """A tenancy, and whether it is over."""

    def __init__(self) -> None:
        self.over = False
        self.tenancy = Tenancy([], None, self._end)

    def _end(self, _: Tenancy) -> None:
        self.over = True


def test_a_job_is_owed_until_it_is_settled() -> None:
    debts = Debts()
    debts.add(ONE, 1, None)
    assert debts.owes(ONE, 1) == 1
    assert debts.owes(OTHER, 1) is None
    assert ONE in debts
    assert debts.settle(ONE, 1)
    assert ONE not in debts
    assert debts.settle(ONE, 1)  # cancelled, and answered all the same


def test_what_is_answered_last_is_released_with_the_answer() -> None:
    debts, ended = Debts(), Ended()
    debts.add(ONE, 1, ended.tenancy)
    assert debts.settle(ONE, 1, quietly=True)
    assert ended.over
    assert ended.tenancy.quiet


def test_what_a_batch_still_reads_is_released_by_itself() -> None:
    debts, ended = Debts(), Ended()
    debts.add(ONE, 1, ended.tenancy)
    ended.tenancy.hold()
    assert not debts.settle(ONE, 1, quietly=True)
    assert not ended.over
    assert not ended.tenancy.quiet
    ended.tenancy.let_go()
    assert ended.over


def test_the_members_of_a_pack_lie_where_it_lay_until_the_last_is_answered() -> None:
    debts, ended = Debts(), Ended()
    debts.add(ONE, 1, ended.tenancy)
    debts.dissolve(ONE, 1, (2, 4))
    assert [job for job in range(6) if debts.owes(ONE, job) is not None] == [2, 4]
    assert not debts.settle(ONE, 2, quietly=True)  # the client knows the memory by the pack's number
    assert not ended.over
    assert not debts.settle(ONE, 4, quietly=True)
    assert ended.over
    assert not ended.tenancy.quiet


def test_the_numbers_of_a_packs_members_are_owed_from_the_beginning() -> None:
    debts = Debts()
    debts.add(ONE, 10, None, 3)
    debts.add(ONE, 20, None, 1)
    debts.add(ONE, 16, None)
    assert [job for job in range(25) if debts.owes(ONE, job) is not None] == [10, 11, 12, 13, 16, 20, 21]
    found = {(job, members): debts.owes(ONE, job, members) for job in range(25) for members in range(1, 12)}
    owed = {10, 11, 12, 13, 16, 20, 21}
    for (job, members), number in found.items():
        touched = owed & set(range(job, job + members + 1))
        assert (number in touched) if touched else number is None, (job, members, number)


@pytest.mark.parametrize("ends", ["settled", "dissolved", "forgotten"])
def test_a_pack_that_has_ended_holds_no_numbers(ends: str) -> None:
    debts = Debts()
    debts.add(ONE, 10, None, 3)
    debts.add(ONE, 20, None, 3)
    if ends == "settled":
        debts.settle(ONE, 10)
    elif ends == "dissolved":
        debts.dissolve(ONE, 10, (11, 12, 13))
        for member in (11, 12, 13):
            debts.settle(ONE, member)
    else:
        debts.forget(ONE)
        debts.add(ONE, 20, None, 3)
    assert [job for job in range(25) if debts.owes(ONE, job) is not None] == [20, 21, 22, 23]
    debts.settle(ONE, 20)
    assert ONE not in debts
    assert [job for job in range(25) if debts.owes(ONE, job) is not None] == []


def test_a_pack_of_which_nobody_is_left_is_no_debt() -> None:
    debts, ended = Debts(), Ended()
    debts.add(ONE, 1, ended.tenancy)
    debts.dissolve(ONE, 1, ())
    assert ONE not in debts
    assert ended.over


def test_a_client_that_is_gone_is_told_nothing() -> None:
    debts, ended, other = Debts(), Ended(), Ended()
    debts.add(ONE, 1, ended.tenancy)
    debts.add(OTHER, 1, other.tenancy)
    ended.tenancy.hold()
    debts.forget(ONE)
    assert ended.tenancy.quiet
    ended.tenancy.let_go()
    assert ended.over
    assert not other.over
    assert OTHER in debts

"""What is owed to a client, and until when the memory of its jobs is somebody else's to use."""

from pool.serve.arenas import Tenancy
from pool.serve.debts import Debts

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
    debts.of(ONE)[1] = None
    assert 1 in debts.of(ONE)
    assert OTHER not in debts
    assert ONE in debts
    assert debts.settle(ONE, 1)
    assert ONE not in debts
    assert debts.settle(ONE, 1)  # cancelled, and answered all the same


def test_what_is_answered_last_is_released_with_the_answer() -> None:
    debts, ended = Debts(), Ended()
    debts.of(ONE)[1] = ended.tenancy
    assert debts.settle(ONE, 1, quietly=True)
    assert ended.over
    assert ended.tenancy.quiet


def test_what_a_batch_still_reads_is_released_by_itself() -> None:
    debts, ended = Debts(), Ended()
    debts.of(ONE)[1] = ended.tenancy
    ended.tenancy.hold()
    assert not debts.settle(ONE, 1, quietly=True)
    assert not ended.over
    assert not ended.tenancy.quiet
    ended.tenancy.let_go()
    assert ended.over


def test_a_client_that_is_gone_is_told_nothing() -> None:
    debts, ended, other = Debts(), Ended(), Ended()
    debts.of(ONE)[1] = ended.tenancy
    debts.of(OTHER)[1] = other.tenancy
    ended.tenancy.hold()
    debts.forget(ONE)
    assert ended.tenancy.quiet
    ended.tenancy.let_go()
    assert ended.over
    assert not other.over
    assert OTHER in debts

"""What a disk says, and that it fails, comes back."""

from select import select
from threading import Event

from pool.serve.changes import Disk


def test_a_disk_answers_when_it_can_and_says_where_it_fails() -> None:
    disk, gate, told = Disk(), Event(), list[object]()
    disk.read(lambda: gate.wait(60), told.append)  # this one hangs
    disk.read(lambda: 1 // 0, told.append)
    assert select([disk.reader], [], [], 60)[0]
    disk.hear()
    assert told == [None]
    gate.set()
    assert select([disk.reader], [], [], 60)[0]
    disk.hear()
    assert told == [None, True]

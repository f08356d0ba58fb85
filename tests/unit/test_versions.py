"""Which version is to be served, by what lies in the folder now and did at the last look."""

import os
from pathlib import Path

import pytest

from pool.plan.versions import Look, Served, Watched, look_again, resolve
from pool.wire.versions import STUB_FILES


def write(folder: Path, *numbers: int, text: str = "echo") -> None:
    for number in numbers:
        (folder / str(number)).mkdir(parents=True, exist_ok=True)
        (folder / str(number) / "saved_model.pb").write_text(text)


class Folder:
    """One model's folder, looked at again and again. `served` is what was chosen last."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder)
        self.served = resolve(self.path)
        self.last = Look({}, {}, {})
        self.broken: dict[str, tuple[tuple[str, int, int], ...]] = {}

    def look(self) -> int | None:
        """The number that is to be served from now on, if that is news."""
        served = () if self.served is None else (self.served,)
        self.last = look_again({"m": Watched(self.path, served)}, self.last.seen, self.broken)
        if "m" not in self.last.found:
            return None
        (self.served,) = self.last.found["m"]
        self.broken.pop(self.served.path, None)
        return self.served.number

    def breaks(self) -> None:
        assert self.served is not None
        self.broken[self.served.path] = self.served.stamp


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, 1)
    return tmp_path


def test_the_newest_whole_one_is_served_first(folder: Path) -> None:
    write(folder, 2, 10)
    (folder / "11").mkdir()
    (folder / "notes").mkdir()
    found = resolve(str(folder))
    assert isinstance(found, Served)
    assert (found.number, found.path) == (10, str(folder / "10"))


@pytest.mark.parametrize(
    "path", ["stub:rows", "/nowhere", "stub:files?/nowhere", "{}/1", "{}/1/saved_model.pb", "{}/f"]
)
def test_what_has_no_versions_is_served_as_it_is(folder: Path, path: str) -> None:
    (folder / "f").mkdir()
    assert resolve(path.format(folder)) is None
    assert look_again({"m": Watched(path.format(folder), ())}, {}, {}) == Look({}, {}, {})


def test_stubs_may_lie_in_folders_of_versions_too(folder: Path) -> None:
    found = resolve(f"{STUB_FILES}{folder}")
    assert found is not None
    assert found.path == f"{STUB_FILES}{folder}/1"


def test_a_new_one_is_taken_when_it_was_the_same_for_a_look(folder: Path) -> None:
    watched = Folder(folder)
    assert watched.look() is None
    write(folder, 2)
    assert watched.look() is None, "it may be on its way here still"
    assert watched.look() == 2
    assert watched.look() is None


def test_one_that_grows_is_waited_for(folder: Path) -> None:
    watched = Folder(folder)
    (folder / "2").mkdir()
    assert [watched.look(), watched.look()] == [None, None], "it holds no model yet"
    write(folder, 2)
    (folder / "2" / "variables").mkdir()
    for size in range(1, 5):
        (folder / "2" / "variables" / "variables.data").write_bytes(bytes(size))
        assert watched.look() is None
    os.utime(folder / "2" / "variables" / "variables.data", (1.0, 1.0))
    assert watched.look() is None, "its size is the same, and it was written anew"
    assert watched.look() == 2


def test_of_two_that_come_at_once_the_newer_one_is_served(folder: Path) -> None:
    watched = Folder(folder)
    write(folder, 2, 3)
    watched.look()
    assert watched.look() == 3
    assert watched.look() is None


def test_a_broken_one_is_not_taken_again_until_its_files_change(folder: Path) -> None:
    watched = Folder(folder)
    write(folder, 2)
    watched.look()
    assert watched.look() == 2
    watched.breaks()
    watched.look()
    assert watched.look() == 1, "back to the good one"
    assert [watched.look() for _ in range(3)] == [None] * 3
    write(folder, 2, text="another")
    assert watched.look() is None
    assert watched.look() == 2


def test_a_newer_one_than_the_broken_one_is_taken(folder: Path) -> None:
    watched = Folder(folder)
    write(folder, 2)
    watched.look()
    watched.look()
    watched.breaks()
    write(folder, 3)
    watched.look()
    assert watched.look() == 3


def test_one_that_was_removed_makes_way_for_the_next_below(folder: Path) -> None:
    write(folder, 2)
    watched = Folder(folder)
    os.remove(folder / "2" / "saved_model.pb")
    assert watched.look() is None
    assert watched.look() == 1


def test_the_last_one_that_was_removed_is_served_on_and_told(folder: Path) -> None:
    watched = Folder(folder)
    os.remove(folder / "1" / "saved_model.pb")
    assert watched.look() is None
    assert watched.last.troubles == {"m": f"no version is left in {folder}"}


def test_a_folder_that_vanishes_is_told_and_may_come_back(folder: Path) -> None:
    watched = Folder(folder)
    folder.rename(folder.with_name("away"))
    assert watched.look() is None
    assert watched.last.troubles == {"m": f"{folder} cannot be read: No such file or directory"}
    folder.with_name("away").rename(folder)
    assert watched.look() is None
    assert watched.last.troubles == {}


def test_a_folder_that_was_empty_at_first_is_looked_at_too(tmp_path: Path) -> None:
    watched = Folder(tmp_path)
    assert watched.served is None
    assert watched.look() is None
    write(tmp_path, 7)
    watched.look()
    assert watched.look() == 7


def test_a_version_that_cannot_be_read_is_told(folder: Path) -> None:
    watched = Folder(folder)
    write(folder, 2)
    (folder / "2" / "variables").symlink_to("variables")
    assert [watched.look(), watched.look()] == [None, None]
    assert watched.last.troubles == {"m": f"{folder} cannot be read: Too many levels of symbolic links"}


def test_one_in_which_a_file_is_renamed_at_this_moment_is_waited_for(folder: Path) -> None:
    watched = Folder(folder)
    write(folder, 2)
    (folder / "2" / "part").symlink_to("nothing")
    assert [watched.look(), watched.look()] == [None, None]
    (folder / "2" / "part").unlink()
    assert [watched.look(), watched.look()] == [None, 2]
    assert watched.last.troubles == {}


def test_the_trouble_of_one_model_is_not_anothers(folder: Path) -> None:
    watched = Folder(folder)
    assert watched.served is not None
    gone = Served(1, "/nowhere/1", ())
    write(folder, 2)
    models = {"gone": Watched("/nowhere", (gone,)), "m": Watched(str(folder), (watched.served,))}
    first = look_again(models, {}, {})
    assert list(first.troubles) == ["gone"]
    assert look_again(models, first.seen, {}).found["m"][0].number == 2

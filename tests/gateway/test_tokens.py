"""The file of tokens: who made it, who can read it, and what may stand in it."""

import hashlib
import os
import stat
from pathlib import Path

import pytest

from pool.kept import WrongTokens, add_token, read_tokens


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens"


def refused(file: Path) -> str:
    with pytest.raises(WrongTokens) as caught:
        read_tokens(file)
    with pytest.raises(WrongTokens):
        add_token(file, "alice")
    return str(caught.value)


def test_a_token_is_shown_once_and_its_digest_is_kept_where_nobody_else_reads(file: Path) -> None:
    before = os.umask(0)
    try:
        first, second = add_token(file, "alice"), add_token(file, "alice")
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert first != second
    assert len(first) >= 43, "256 bits"
    assert [(token.name, token.digest) for token in read_tokens(file)] == [
        ("alice", hashlib.sha256(each.encode()).digest()) for each in (first, second)
    ]
    assert first not in file.read_text()


def test_comments_and_a_missing_end_of_line_are_no_tokens(file: Path) -> None:
    add_token(file, "alice")
    file.write_text("# who may come\n\n" + file.read_text().strip())
    add_token(file, "bob")
    assert [token.name for token in read_tokens(file)] == ["alice", "bob"]


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o666])
def test_a_file_that_others_can_open_is_refused(file: Path, mode: int) -> None:
    file.touch()
    file.chmod(mode)
    assert refused(file) == f"{file} has mode {mode:04o}, so others can open it; run chmod 0600"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(file: Path) -> None:
    file.touch(0o600)
    os.chown(file, 23456, -1)
    assert refused(file) == f"{file} belongs to uid 23456; give a file that belongs to uid 0 or to root"
    assert read_tokens(file, 23456) == (), "who runs the pool, as `pool systemd` has it"


def test_what_is_no_file_is_refused_and_holds_up_nobody(file: Path) -> None:
    os.mkfifo(file, 0o600)
    assert "is not a file" in refused(file)
    file.unlink()
    file.mkdir(0o700)
    assert "is not a file" in refused(file)


@pytest.mark.parametrize(
    "line", ["alice", "alice 12", f"a/b {'0' * 64}", f"alice {'g' * 64}", f"alice {'0' * 64} x", "\xff", "a" * 99]
)
def test_a_line_that_is_no_token_is_refused_and_not_quoted(file: Path, line: str) -> None:
    """Somebody may have written the token itself."""
    file.touch(0o600)
    file.write_text(f"# tokens\n{line}\n", encoding="latin-1")
    assert refused(file) == f"{file}: line 2 is not a name and 64 hexadecimal digits; remove the line"


def test_one_token_is_of_one_client(file: Path) -> None:
    add_token(file, "alice")
    file.write_text(file.read_text() + file.read_text().replace("alice", "bob"))
    assert refused(file) == f"{file}: line 2 has the token of alice again; remove one of the two lines"


def test_a_file_without_end_is_not_read(file: Path) -> None:
    file.touch(0o600)
    os.truncate(file, 1 << 40)
    assert "more than 1048576 bytes" in refused(file)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a" * 65, "ä"])
def test_a_name_that_could_not_stand_there_is_refused(file: Path, name: str) -> None:
    with pytest.raises(WrongTokens, match="is not a name"):
        add_token(file, name)
    assert not file.exists()

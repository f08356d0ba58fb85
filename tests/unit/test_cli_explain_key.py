"""`pool check --explain`: what the reference says of a key, for each key of the schema."""

import json

import pytest

from docs.generated import _keys_in, sections
from pool.config.renamed import RENAMED
from pool.docs import keys, keys_named
from support.commands import in_process


def test_each_key_of_the_schema_is_explained_and_no_other() -> None:
    schema = {(section, name) for section, table in sections().items() for name, _ in _keys_in(table)}
    assert {(key.section.strip("[]"), key.name) for key in keys()} == schema
    assert len(keys()) == len(schema)
    assert all(key.takes and key.default and key.means for key in keys())
    assert not [key for key in keys() if "`" in key.means or "](" in key.means]


@pytest.mark.parametrize("asked", ["lanes", "pool.lanes", "[pool] lanes", "[pool]lanes", " lanes "])
def test_a_key_is_asked_for_as_people_write_it(asked: str) -> None:
    status, out, err = in_process("check", "--explain", asked)
    assert (status, err) == (0, "")
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "[pool] lanes",
        "takes whole number, 1 to 16",
        "default 2",
        "means Threads of each worker that run batches.",
    ]


def test_keys_of_one_name_and_of_a_section_are_shown_together() -> None:
    assert [key.section for key in keys_named("max_jobs")] == ["[[model]]", "[[client]]", "[queue]"]
    assert [key.name for key in keys_named("[recycle]")] == ["age", "jobs", "host_memory"]
    assert [key.name for key in keys_named("tolerance")] == ["advanced.tolerance"]
    assert keys_named("model.advanced.tolerance") == keys_named("tolerance")
    (found,) = json.loads(in_process("check", "--explain", "queue.max_jobs", "--json").out)
    assert (found["section"], found["name"], found["default"]) == ("[queue]", "max_jobs", "10000")


@pytest.mark.parametrize("former", [old for old in RENAMED if not keys_named(old)])
def test_a_former_name_is_told_the_new_one(former: str) -> None:
    status, _, err = in_process("check", "--explain", former)
    assert status == 2
    assert f"{former} is now {RENAMED[former]}" in err


@pytest.mark.parametrize("asked", ["lane", "max_job", "", "\x1b[31m", "zzzz"])
def test_what_is_no_key_is_told_what_is(asked: str) -> None:
    status, out, err = in_process("check", "--explain", asked)
    assert (status, out) == (2, "")
    assert "did you mean" in err or "`pool help configuration` lists all" in err
    assert "\x1b" not in err

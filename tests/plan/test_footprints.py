import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pool.config.sections import Config, Model
from pool.plan.facts import Facts, completed, looked
from pool.plan.footprints import BASE_BYTES, KEPT, Footprints
from pool.wire.files import files_at


def model(path: str, **keys: Any) -> Model:
    return Model.model_validate({"name": "m", "path": path, **keys}, context={"base": "/", "names": []})


def test_what_a_model_needs_is_what_its_section_says_or_a_run_has_shown_or_by_its_files(tmp_path: Path) -> None:
    # A checkpoint's weights are beside its graph.
    for name in ("a.meta", "a.index", "a.data-00000-of-00001", "ab.meta"):
        (tmp_path / name).write_bytes(bytes(500))
    file, one = tmp_path / "state" / "footprints.json", model(f"{tmp_path}/a.meta")
    digest, nbytes, _ = files_at(one.path)
    footprints = Footprints(file)
    assert footprints.need(one, digest, nbytes) == (BASE_BYTES + 1800, "weights")
    footprints.learn(one, digest, 5000)
    assert not any(footprints.is_more(one, digest, nbytes) for nbytes in (100, 5200))  # little more
    assert footprints.is_more(one, digest, 6000)
    footprints.learn(one, digest, 6000)
    assert Footprints(file).need(one, digest, nbytes) == (6000, "learned")
    assert footprints.need(model(one.path, device_memory="1GiB"), digest, nbytes) == (1 << 30, "device_memory")
    assert footprints.need(model(one.path, max_batch=64), digest, nbytes)[1] == "weights"
    (tmp_path / "a.meta").write_bytes(bytes(1000))
    assert footprints.need(one, *files_at(one.path)[:2]) == (BASE_BYTES + 2400, "weights")
    assert footprints.need(model("stub:echo"), "", 0) == (0, "weights")


def test_a_copy_needs_more_as_it_grows(tmp_path: Path) -> None:
    (tmp_path / "m.pb").touch()
    facts = Facts(Config.model_construct(model=[model(f"{tmp_path}/m.pb")]), [])
    for kib in (1, 2):
        (tmp_path / "m.pb").write_bytes(bytes(kib << 10))
        facts = completed(replace(facts, looks=looked(facts.config, facts.looks)), Footprints(tmp_path / "f.json"))
    assert facts.needs["m", f"{tmp_path}/m.pb"] == (BASE_BYTES + 2457, "weights")


FULL = json.dumps({f"{number:032}": 10**12 for number in range(KEPT)})


@pytest.mark.parametrize("text", ["", "[1]", '{"a": ', '{"a": true, "b": -1, "c": "x"}', "[" * 99_999, FULL])
def test_a_broken_file_is_replaced_and_a_disk_that_fails_is_no_fault(tmp_path: Path, text: str, caplog: Any) -> None:
    (tmp_path / "f.json").write_text(text)
    Footprints(tmp_path / "f.json").learn(model("stub:echo"), "x", 7)
    found = json.loads((tmp_path / "f.json").read_text())
    assert (len(found), [*found.values()][-1]) == (KEPT if text == FULL else 1, 7)
    Footprints(tmp_path / "f.json" / "away").learn(model("stub:echo"), "x", 7)
    assert "is not kept for the next start: " in caplog.text

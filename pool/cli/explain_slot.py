"""What became of a slot's workers, in words: the bundles of the pool's flight recorder."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from pool.terminal import count_of, new_table, show, span, styled_state
from pool.wire.texts import printable

__all__ = ["deaths_table", "show_slot"]

Bundle = Mapping[str, Any]


def show_slot(found: Mapping[str, Any]) -> None:
    """The newest bundle in full, a line for each of the others, and what the slot is now."""
    bundles: Sequence[Bundle] = found["bundles"]
    slot = found["slot"]
    if bundles:
        _show_bundle(bundles[0], slot)
        _section(
            "before that", [f"incarnation {each['incarnation']}, {_when(each)}: {_why(each)}" for each in bundles[1:]]
        )
        if found["folder"] is not None:
            show(Text(f"\nall of it, and of earlier ones: {printable(found['folder'])}"))
    else:
        show(_now(slot))
        show(Text("no worker of it has died that this pool knows of"))


def deaths_table(deaths: Sequence[Mapping[str, Any]]) -> Table:
    table = new_table(["DIED", "SLOT", "DEVICE", ">INC.", "WHY"])
    for death in deaths:
        table.add_row(
            _when(death), f"slot:{death['slot']}", printable(death["device"]), str(death["incarnation"]), _why(death)
        )
    return table


def _show_bundle(bundle: Bundle, slot: Mapping[str, Any]) -> None:
    who = f"slot {bundle['slot']} {printable(bundle['device'])}, incarnation {bundle['incarnation']}"
    pid = "" if bundle.get("pid") is None else f", pid {bundle['pid']}"
    show(Text.assemble((who, "bold"), f"{pid}: ", (_why(bundle), "red")))
    lived = "" if bundle.get("up_s") is None else f", after {_short(bundle['up_s'])}"
    show(Text(f"  died {_when(bundle)}{lived}; {_was(bundle)}"))
    lately = bundle.get("deaths_lately", 1)
    if lately > 1:
        show(Text(f"  the {_ordinal(lately)} death in this slot within an hour"))
    show(Text("  ").append_text(_now(slot)))
    for batch in bundle["batches"]:
        show(Text(f"\n{_batch(batch)}"))
        for line in _feeds(batch):
            show(Text(f"  {line}"))
    _section("stacks", printable(bundle["stacks"], "\n").splitlines() or _no_stacks(bundle))
    _section("its threads, as the kernel saw them", bundle["threads"])
    _section("its last beats", map(_beat, bundle["beats"]))
    _section("its last output", bundle["last_output"])


def _section(title: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        show(Text(f"\n{title}", "bold"))
    for line in lines:
        show(Text(f"  {printable(line)}"))


def _when(about: Mapping[str, Any]) -> str:
    try:
        return f"{datetime.fromisoformat(about['died_at']).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return printable(about["died_at"])


def _why(about: Mapping[str, Any]) -> str:
    if about["killed_for"] is None:
        return printable(about["exit"])
    ended = "" if about["exit"] == "SIGKILL" else f"; its end: {about['exit']}"
    return printable(f"killed by the pool, because it {about['killed_for']}{ended}")


def _was(bundle: Bundle) -> str:
    state = f"it had been {bundle['state']} for {_short(bundle['state_s'])}"
    if bundle["phase"] == "serving":
        return state
    doing = f"{bundle['phase']} {bundle['detail']}".rstrip()
    return printable(f"{state}, {doing} for {_short(bundle['phase_s'])}")


def _short(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else span(seconds)


def _now(slot: Mapping[str, Any]) -> Text:
    text = Text.assemble(f"slot {slot['slot']} is now ", styled_state(slot["state"]), f" for {_short(slot['state_s'])}")
    if slot["pid"] is not None:
        text.append(f": incarnation {slot['incarnation']}, pid {slot['pid']}")
    return text.append(f", {printable(slot['doing'])}" if slot["doing"] else "")


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _batch(batch: Mapping[str, Any]) -> str:
    model = f"{batch['model']} {batch['signature'] or ''}".rstrip()
    rows = f", {count_of(batch['rows'], 'row')}" if batch["rows"] else ""
    padded = f" (fed as {batch['fed_rows']})" if batch["rows"] and batch["fed_rows"] != batch["rows"] else ""
    jobs = ", ".join(map(str, batch["jobs"])) + (", …" if batch["jobs_in_all"] > len(batch["jobs"]) else "")
    alone = ", alone because a worker had died of it before" if batch["suspect"] else ""
    which = f"lane {batch['lane']} had run batch {batch['batch']} of {model} for {batch['age_s']:.1f} s"
    return printable(f"{which}{rows}{padded}: {count_of(batch['jobs_in_all'], 'job')} ({jobs}){alone}")


def _feeds(batch: Mapping[str, Any]) -> list[str]:
    if batch["feeds"] is None:
        return ["what it was fed is not known"]
    return [
        printable(f"{feed['name'] or 'its only input'}  {feed['dtype']} [{', '.join(map(str, feed['shape']))}]")
        for feed in batch["feeds"]
    ]


def _no_stacks(bundle: Bundle) -> list[str]:
    return [bundle["note"]] if bundle["note"] else []


def _beat(beat: Mapping[str, Any]) -> str:
    doing = f"{beat['phase']} {beat['detail']}".rstrip()
    running = [f"lane {lane['lane']} batch {lane['batch']} for {lane['age_s']:.1f} s" for lane in beat["running"]]
    return f"{beat['age_s']:.1f} s before: {doing}" + (f"; {', '.join(running)}" if running else "")

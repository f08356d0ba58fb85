"""What became of a slot's workers, in words: the crash reports that the pool keeps."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from pool.terminal import count_of, new_table, show, span, styled_state
from pool.wire.records import Batch, Beat, CrashReport, Death, Slot, SlotHistory
from pool.wire.texts import printable

__all__ = ["deaths_table", "show_slot"]


def show_slot(found: SlotHistory) -> None:
    """The newest report in full, a line for each of the others, and what the slot is now."""
    reports, slot = found.crash_reports, found.slot
    if reports:
        _show_report(reports[0], slot)
        _section(
            "before that", [f"incarnation {each.incarnation}, {_when(each)}: {_why(each)}" for each in reports[1:]]
        )
        if found.folder is not None:
            show(Text(f"\nall crash reports: {printable(found.folder)}"))
    else:
        show(_now(slot))
        show(Text("no worker of this slot has died"))


def deaths_table(deaths: Sequence[Death]) -> Table:
    table = new_table(["DIED", "SLOT", "DEVICE", ">INC.", "WHY"])
    for death in deaths:
        table.add_row(_when(death), f"slot:{death.slot}", printable(death.device), str(death.incarnation), _why(death))
    return table


def _show_report(report: CrashReport, slot: Slot) -> None:
    who = f"slot {report.slot} {printable(report.device)}, incarnation {report.incarnation}"
    pid = "" if report.pid is None else f", pid {report.pid}"
    show(Text.assemble((who, "bold"), f"{pid}: ", (_why(report), "red")))
    lived = "" if report.up_s is None else f", after {_short(report.up_s)}"
    show(Text(f"  died {_when(report)}{lived}; {_was(report)}"))
    lately = report.deaths_lately
    if lately > 1:
        show(Text(f"  the {_ordinal(lately)} death in this slot within an hour"))
    show(Text("  ").append_text(_now(slot)))
    for batch in report.batches:
        show(Text(f"\n{_batch(batch)}"))
        for line in _feeds(batch):
            show(Text(f"  {line}"))
    _section("stacks", printable(report.stacks, "\n").splitlines() or _no_stacks(report))
    _section("its threads, as the kernel saw them", report.threads)
    _section("its last beats", map(_beat, report.beats))
    _section("its last output", report.last_output)


def _section(title: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    if lines:
        show(Text(f"\n{title}", "bold"))
    for line in lines:
        show(Text(f"  {printable(line)}"))


def _when(about: CrashReport | Death) -> str:
    try:
        return f"{datetime.fromisoformat(about.died_at).astimezone():%Y-%m-%d %H:%M:%S}"  # as the log has it
    except ValueError:
        return printable(about.died_at)


def _why(about: CrashReport | Death) -> str:
    if about.killed_for is None:
        return printable(about.exit)
    ended = "" if about.exit == "SIGKILL" else f"; it ended with {about.exit}"
    return printable(f"killed by the pool because it {about.killed_for}{ended}")


def _was(report: CrashReport) -> str:
    state = f"it had been {report.state} for {_short(report.state_s)}"
    if report.phase == "serving":
        return state
    doing = f"{report.phase} {report.detail}".rstrip()
    return printable(f"{state}, {doing} for {_short(report.phase_s)}")


def _short(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else span(seconds)


def _now(slot: Slot) -> Text:
    text = Text.assemble(f"slot {slot.slot} is now ", styled_state(slot.state), f" for {_short(slot.state_s)}")
    if slot.pid is not None:
        text.append(f": incarnation {slot.incarnation}, pid {slot.pid}")
    return text.append(f", {printable(slot.doing)}" if slot.doing else "")


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _batch(batch: Batch) -> str:
    model = f"{batch.model} {batch.signature or ''}".rstrip()
    rows = f", {count_of(batch.rows, 'row')}" if batch.rows else ""
    padded = f" (fed as {batch.fed_rows})" if batch.rows and batch.fed_rows != batch.rows else ""
    jobs = ", ".join(map(str, batch.jobs)) + (", …" if batch.jobs_in_all > len(batch.jobs) else "")
    alone = ", alone because it had killed a worker before" if batch.suspect else ""
    which = f"lane {batch.lane} had run batch {batch.batch} of {model} for {batch.age_s:.1f} s"
    return printable(f"{which}{rows}{padded}: {count_of(batch.jobs_in_all, 'job')} ({jobs}){alone}")


def _feeds(batch: Batch) -> list[str]:
    if batch.feeds is None:
        return ["its inputs are not known"]
    return [
        printable(f"{feed.name or 'its only input'}  {feed.dtype} [{', '.join(map(str, feed.shape))}]")
        for feed in batch.feeds
    ]


def _no_stacks(report: CrashReport) -> list[str]:
    return [report.note] if report.note else []


def _beat(beat: Beat) -> str:
    doing = f"{beat.phase} {beat.detail}".rstrip()
    running = [f"lane {lane.lane} batch {lane.batch} for {lane.age_s:.1f} s" for lane in beat.running]
    return f"{beat.age_s:.1f} s earlier: {doing}" + (f"; {', '.join(running)}" if running else "")

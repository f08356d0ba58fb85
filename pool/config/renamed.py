"""What keys were called before, and what they are called now: who writes a former name is told the new one."""

from collections.abc import Mapping

__all__ = ["RENAMED", "renamed"]

# A section has brackets, two where it may be there many times.
RENAMED: Mapping[str, str] = {
    "[arena]": "[shared_memory]",
    "[recorder]": "[crash_reports]",
    "[session]": "[tensorflow]",
    "[pool] spin_us": "[advanced] spin_us",
    "[restart] successor": "[restart] replacement",
    "[recycle] memory": "[recycle] host_memory",
    "[[device]] session": "[[device]] tensorflow",
    "[[model]] session": "[[model]] tensorflow",
    "[[model]] memory": "[[model]] device_memory",
    "[[model]] placement": "[[model]] layer_devices",
    "[[model]] towers": "[[model]] copy_per_device",
    "[[model]] jit": "[[model]] xla",
    "[[model]] clear_devices": "[[model]] advanced.clear_devices",
    "[[model]] grappler": "[[model]] advanced.grappler",
    "[[model]] tolerance": "[[model]] advanced.tolerance",
}


def renamed(section: str, key: str | None = None) -> str | None:
    """The new name of a section, or of a key in it, as it is to be written there; None where it never had another."""
    former = section if key is None else f"{section} {key}"
    now = RENAMED.get(former)
    return None if now is None else now.removeprefix(f"{section} ")

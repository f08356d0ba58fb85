"""The options of `tf.Session.run` that mean something here."""

from collections.abc import Mapping

__all__ = ["run_options"]

MOST_TRACED = 3  # FULL_TRACE


def run_options(options: object) -> tuple[float | None, int]:
    """The timeout in seconds, None where none is set, and the trace level.

    `options` is None, an object with the attributes of `tf.RunOptions`, or a mapping of them. Raises `TypeError` for
    anything else, and `ValueError` for what is no time and no level.
    """
    if options is None:
        return None, 0
    if isinstance(options, Mapping):
        unknown = options.keys() - {"timeout_in_ms", "trace_level"}
        if unknown:
            raise ValueError(
                f"options has {sorted(map(str, unknown))}; only timeout_in_ms and trace_level are supported"
            )
        timeout_ms, level = options.get("timeout_in_ms", 0), options.get("trace_level", 0)
    elif hasattr(options, "timeout_in_ms") or hasattr(options, "trace_level"):
        timeout_ms, level = getattr(options, "timeout_in_ms", 0), getattr(options, "trace_level", 0)
    else:
        raise TypeError(
            f"`options` must be like tf.RunOptions or a mapping, not the {type(options).__name__} {options}"
        )
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not timeout_ms >= 0:
        raise ValueError(f"timeout_in_ms is {timeout_ms!r}; give milliseconds, or 0 for none")
    if isinstance(level, bool) or not isinstance(level, int) or not 0 <= level <= MOST_TRACED:
        raise ValueError(f"trace_level is {level!r}; give a number from 0 to {MOST_TRACED}")
    return (timeout_ms / 1000 if timeout_ms else None), level

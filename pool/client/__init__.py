"""The library in the caller's process."""

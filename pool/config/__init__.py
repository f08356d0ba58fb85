"""A TOML file comes in, a frozen `Config` with every key goes out, or `InvalidConfig` with all mistakes at once."""

from pool.config.reading import explain, load, parse
from pool.config.sections import Config

__all__ = ["Config", "explain", "load", "parse"]

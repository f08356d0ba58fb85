"""The configuration: `config.toml` in, frozen `Settings` out. The only package that imports pydantic."""

from pool.config.demo import demo_folder
from pool.config.load import builtin_settings, load_settings, parse_settings
from pool.config.settings import Settings

__all__ = ["Settings", "builtin_settings", "demo_folder", "load_settings", "parse_settings"]

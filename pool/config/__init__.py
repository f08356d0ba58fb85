"""The configuration: a file becomes settings.

In comes the text of `config.toml`. Out go frozen `Settings`, in which every key has a value, or one error that names
file, line, key and what would be right. It never looks at a device or a model's files; it reads the tokens and the
certificate of a gateway. It alone imports pydantic.
"""

from pool.config.client import ClientSection
from pool.config.load import demo_folder, load_settings, parse_settings, tokens_path, with_demo, with_gateway
from pool.config.renamed import RENAMED
from pool.config.settings import Settings

__all__ = [
    "RENAMED",
    "ClientSection",
    "Settings",
    "demo_folder",
    "load_settings",
    "parse_settings",
    "tokens_path",
    "with_demo",
    "with_gateway",
]

"""The documentation: Markdown files in this folder, shipped with the package.

A page's name comes in, its text goes out; a key's name, and what its page says of it. This room never prints, and never
reads a file that lies elsewhere.
"""

from pool.docs.keys import Key, dotted, keys, keys_named
from pool.docs.pages import GROUPS, NoSuchPage, Page, page, pages

__all__ = ["GROUPS", "Key", "NoSuchPage", "Page", "dotted", "keys", "keys_named", "page", "pages"]

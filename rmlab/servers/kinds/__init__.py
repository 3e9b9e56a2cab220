"""Kinds of servers, one file each: how each is asked for raw scores, and how its
replies are read.
"""

from importlib import import_module
from pkgutil import iter_modules

# A class that inherits from `ServerKind` is known by its name once it is imported.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

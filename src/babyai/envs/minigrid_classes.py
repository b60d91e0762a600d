"""Objects of ours that pass for Minigrid's in `isinstance`, so that code written for Minigrid accepts them.

`isinstance(x, C)` also looks at `x.__class__`. Where Minigrid has been imported, by whoever uses it, our objects name
its class there; babyai itself never imports Minigrid.
"""

import sys


def minigrid_class(module: str, name: str, otherwise: type) -> type:
    """Minigrid's class of this name if its module has been imported, else `otherwise`."""
    return getattr(sys.modules.get(module), name, otherwise)

"""Models that change as they run: found with one short pass, and put back after every pass from then on."""

import copy
import logging
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["changes", "keep_state", "put_back", "remember"]

_PARTS = ("_modules", "_buffers")
# Weights stay what they are; where accelerate moves them, they are other objects after each pass.
_LEFT_OUT = (*_PARTS, "_parameters")
# Hooks belong to whoever looks at the model (`keep_state` sets one itself), not to its state.
_HOOKS = "hook"
_found: "WeakKeyDictionary[PreTrainedModel, list[str]]" = WeakKeyDictionary()

State = list[tuple[object, dict[str, object]]]
"""Objects (modules and configurations) with what their attributes were."""


def keep_state(backbone: "PreTrainedModel") -> list[str]:
    """Names of the attributes that a pass of eight tokens changes; where there are any, every pass is undone.

    BigBird is such a model: a short text switches it to full attention, and long texts after it would get other scores
    than before it. Whatever the model's own forward pass raises is raised.
    """
    import torch

    before = remember(backbone)
    size = int(backbone.config.get_text_config().vocab_size)
    # Eight tokens: few enough for BigBird to leave its sparse attention.
    ids = torch.arange(5, 13, device=backbone.device)[None] % size
    with torch.no_grad():
        backbone(input_ids=ids)
    changed = put_back(before)
    if changed and backbone not in _found:
        # It says so each time that it switches, which is now once per short text.
        logging.getLogger(type(backbone).__module__).setLevel(logging.ERROR)
        backbone.register_forward_hook(partial(_undo, before), always_call=True)
    _found.setdefault(backbone, changed)
    return changed


def changes(backbone: "PreTrainedModel") -> list[str]:
    """What `keep_state` found; empty for a model that it has not seen."""
    return _found.get(backbone, [])


def remember(backbone: "PreTrainedModel") -> State:
    """The attributes of all modules and of the configuration as they are now; tensors by identity."""
    return [(owner, _attributes(owner)) for owner in [backbone.config, *backbone.modules()]]


def put_back(state: State) -> list[str]:
    """Undo what has changed since `remember`; returns the names of the attributes that had changed."""
    changed: set[str] = set()
    for owner, before in state:
        now = _attributes(owner)
        names = [name for name in before.keys() | now.keys() if not _same(before.get(name), now.get(name))]
        for name in names:
            # "_modules/head" is an entry of such a dictionary, a plain name an attribute.
            part, _, key = name.rpartition("/")
            target = owner.__dict__[part] if part else owner.__dict__
            if name in before:
                target[key] = before[name]
            else:
                del target[key]
        changed.update(name.rpartition("/")[2] for name in names)
    return sorted(changed)


def _undo(before: State, *_: object) -> None:
    put_back(before)


def _attributes(owner: object) -> dict[str, object]:
    held = {name: _copied(value) for name, value in vars(owner).items() if name not in _LEFT_OUT and _HOOKS not in name}
    for part in _PARTS:
        held |= {f"{part}/{name}": value for name, value in vars(owner).get(part, {}).items()}
    return held


def _copied(value: object) -> object:
    return copy.copy(value) if isinstance(value, list | dict | set) else value


def _same(left: object, right: object) -> bool:
    if left is right:
        return True
    plain = (str, int, float, bool, tuple, list, dict, set, type(None))
    try:
        return isinstance(left, plain) and isinstance(right, plain) and bool(left == right)
    except (ValueError, RuntimeError):  # tensors inside a container: another object is another state
        return False

"""The map agent's log of its own events: what it faced, picked up, opened, and dropped next to what.

Of equal events the log keeps one entry, with the time of the first and of the last. That is enough to tell what was
done before what: instructions ask whether something happened at all, or after something else had happened.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from babyai.agents.map.codes import FACED

LOG_SIZE = 48
CLASS_BITS = 9
KIND_BITS = 3
# More than any time: keeps what was done, rather than faced, in a full log.
DEED = 1 << 16


class EventLog(NamedTuple):
    """The logs of N episodes, in no particular order."""

    keys: Tensor
    """(N, 48) int64: kind, class, and the classes of the four neighbors, largest first; see `unpack_keys`."""
    first: Tensor
    """(N, 48) int16, when it happened first."""
    last: Tensor
    """(N, 48) int16, when it happened last; -1 for entries not in use."""


def new_log(n: int, device: torch.device | str = "cpu") -> EventLog:
    """Empty logs."""
    empty = torch.zeros((n, LOG_SIZE), dtype=torch.int16, device=device)
    return EventLog(torch.zeros((n, LOG_SIZE), dtype=torch.long, device=device), empty, empty - 1)


def record(log: EventLog, time: Tensor, kind: Tensor, thing: Tensor, neighbors: Tensor) -> EventLog:
    """Logs one event of each lane; nothing where the class is 0.

    If the log is full, the entry that was faced and not seen for longest makes room: whatever was done is kept.

    Args:
        log: Before.
        time: (N,) now.
        kind: (N,) kind of event.
        thing: (N,) class.
        neighbors: (N, 4) classes, largest first.
    """
    key = kind.long() | thing.long() << KIND_BITS
    for side in range(4):
        key = key | neighbors[:, side].long() << (KIND_BITS + CLASS_BITS * (side + 1))
    same = log.keys == key[:, None]
    is_known = same.any(1)
    is_deed = (log.keys & (1 << KIND_BITS) - 1) > FACED
    slot = torch.where(is_known, same.int().argmax(1), (log.last.int() + DEED * is_deed).argmin(1))
    chosen = (torch.arange(LOG_SIZE, device=slot.device) == slot[:, None]) & (thing > 0)[:, None]
    now = time[:, None].to(torch.int16)
    return EventLog(
        keys=torch.where(chosen, key[:, None], log.keys),
        first=torch.where(chosen & ~is_known[:, None], now, log.first),
        last=torch.where(chosen, now, log.last),
    )


def unpack_keys(keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Kinds (...), classes (...) and neighbors' classes (..., 4) of entries."""
    kind = keys & (1 << KIND_BITS) - 1
    classes = [keys >> (KIND_BITS + CLASS_BITS * k) & (1 << CLASS_BITS) - 1 for k in range(5)]
    return kind, classes[0], torch.stack(classes[1:], -1)

"""How many connections this process can have."""

from __future__ import annotations

import resource
from typing import NamedTuple

from .core.limits import CONNECTIONS, OTHER_FILES, STRANGERS


class Capacity(NamedTuple):
    """How many connections have a place: of clients, and of those that have proved nothing."""

    clients: int
    strangers: int

    @classmethod
    def of_this_process(cls) -> Capacity:
        """No more than the process may have files: one more connection could neither be accepted
        nor refused. A client may need two files, its own and one for a link to the broker.
        """
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if files == resource.RLIM_INFINITY:
            return cls(CONNECTIONS, STRANGERS)
        room = max(files - OTHER_FILES, 16)
        strangers = min(STRANGERS, room // 4)
        return cls(min(CONNECTIONS, (room - strangers) // 2), strangers)

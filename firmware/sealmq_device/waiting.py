# How a task waits for a socket. MicroPython's asyncio has this for its streams only, which lose
# what is written while they drain and repeat half a packet when a drain is cancelled.
from asyncio import core  # type: ignore[attr-defined]

_TYPING = False
if _TYPING:
    from typing import Any


# A socket may have one task that waits to read and one that waits to write. Cancel both or none:
# the queue forgets the socket when one is cancelled.
def readable(sock: "Any") -> "Any":
    yield core._io_queue.queue_read(sock)


def writable(sock: "Any") -> "Any":
    yield core._io_queue.queue_write(sock)

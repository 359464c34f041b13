"""The mediator's durable state. What commit has returned survives kill -9 and power loss."""

from .errors import StoreCorrupt, StoreError, StoreUnavailable
from .records import CacheBlob, Held, SessionMark, StoreRecord
from .store import Reader, Store

__all__ = [
    "CacheBlob",
    "Held",
    "Reader",
    "SessionMark",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreRecord",
    "StoreUnavailable",
]

"""The mediator's durable state. What commit has returned survives kill -9 and power loss."""

from .errors import StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from .records import (
    CacheBlob,
    Held,
    KeptGone,
    KeptLeft,
    KeptSession,
    KeptSub,
    KeptSubGone,
    KeptSubs,
    SessionMark,
    StoreRecord,
    WillGone,
    WillRecord,
)
from .store import Reader, Store
from .tables import COUNTING, RUNS

__all__ = [
    "COUNTING",
    "RUNS",
    "CacheBlob",
    "Held",
    "KeptGone",
    "KeptLeft",
    "KeptSession",
    "KeptSub",
    "KeptSubGone",
    "KeptSubs",
    "Reader",
    "SessionMark",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreRecord",
    "StoreUnavailable",
    "WillGone",
    "WillRecord",
]

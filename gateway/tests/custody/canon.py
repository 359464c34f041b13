"""One text for all states that behave alike. Everything that is reachable from some objects counts,
except what is named here.

What is left out cannot decide what happens within a world's bounds: keys, policy, configuration,
statistics, and the clock, which stands still. Of times only their order counts, of sealed bytes
only the message inside.
"""

from __future__ import annotations

import asyncio
import functools
import types
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

OPAQUE = frozenset(
    {
        "Announcements", "Audit", "BootSessions", "Broker", "BrokerAddress", "BrokerFace",
        "BrokerTakes", "Client", "Clock", "Config", "Conn", "Decoder", "Engine", "Events",
        "KeptSessions", "Keyring", "KgRequests", "Limits", "Link", "Logger", "Order", "PosixPath",
        "Queue", "Registry", "Retained", "RetainedBytes", "SetAside", "SharedStore", "Snapshots",
        "Strangers", "SubscribeRequests", "SubscriptionTable", "Turns", "WillKeeper", "Wire",
        "World", "module",
    }
)  # fmt: skip
"""Classes of which only the name counts. What the tables hold is compared by itself."""

LEFT_OUT = frozenset(
    {
        # Names, statistics, and times that do not pass.
        "name", "heard", "_heard", "_until", "_brought_s", "_asked_ms", "peer", "warned", "pause",
        # These follow from other fields.
        "_takes", "_handlers", "_names", "_known", "_known_tlv", "_ring", "_wire", "form",
        "from_ms", "until_ms", "packet", "policy", "_policy", "ring", "_forms", "heads",
        # Numbers that need only be different.
        "_tokens", "_number", "_fd", "_mtime",
        # Among the timers.
        "_planned",
    }
)  # fmt: skip

_SIMPLE = (int, str, bool, type(None))
_PLAIN = frozenset(_SIMPLE)


@functools.cache
def _slots(kind: Any) -> tuple[str, ...]:
    """Of a class and those above it, what counts."""
    every = (name for one in kind.__mro__ for name in one.__dict__.get("__slots__", ()))
    return tuple(name for name in every if name not in LEFT_OUT)


class Canon:
    """`names(bytes)`: which message is inside."""

    def __init__(self, names: Callable[[bytes], int]) -> None:
        self._names = names
        self._out: list[Any] = []
        self._seen: dict[int, int] = {}
        self._floats: list[tuple[int, float]] = []
        self._keep: list[Any] = []

    def of(self, *roots: Any) -> tuple[Any, ...]:
        for root in roots:
            self._walk(root)
        ranks = {value: n for n, value in enumerate(sorted({f for _, f in self._floats}))}
        for at, value in self._floats:
            self._out[at] = ("t", ranks[value])
        return tuple(self._out)

    # Half of a search is spent here: the most frequent first, and of a class what it has once.
    def _walk(self, it: Any) -> None:
        out = self._out
        kind = type(it)
        if kind in _PLAIN or isinstance(it, _SIMPLE):
            out.append(it)
            return
        if kind is float:
            self._floats.append((len(out), it))
            out.append(None)
            return
        if kind is bytes or kind is bytearray:
            out.append(self._names(bytes(it)) if len(it) > 40 else bytes(it))
            return
        name = kind.__name__
        if name in OPAQUE:
            out.append(name)
            return
        number = self._seen.get(id(it))
        if number is not None:
            out.append(("again", number))
            return
        if isinstance(it, tuple) and not it:
            out.append(())
            return
        self._seen[id(it)] = len(self._seen)
        self._keep.append(it)
        if isinstance(it, tuple | list | deque):
            out.append((name, len(it)))
            for one in it:
                self._walk(one)
        elif isinstance(it, Mapping):
            out.append((name, len(it)))
            for key, value in it.items():
                self._walk(key)
                self._walk(value)
        elif isinstance(it, set | frozenset):
            out.append((name, len(it)))
            for one in sorted(it, key=repr) if it and isinstance(next(iter(it)), _SIMPLE) else ():
                self._walk(one)
        else:
            self._object(it, name)

    def _object(self, it: Any, name: str) -> None:
        out = self._out
        match it:
            case types.MethodType():
                out.append(it.__func__.__qualname__)
                self._walk(it.__self__)
            case types.FunctionType():
                out.append(it.__qualname__)
                for cell in it.__closure__ or ():
                    self._cell(cell)
            case partial():
                out.append("partial")
                self._walk(it.func)
                self._walk(it.args)
            case types.CoroutineType():
                self._frame(it.__qualname__, it.cr_frame, it.cr_await)
            case types.GeneratorType():
                self._frame(it.__qualname__, it.gi_frame, it.gi_yieldfrom)
            case asyncio.Task():
                out.append("task")
                if not it.done():
                    self._walk(it.get_coro())
            case asyncio.Future():
                done = it.done()
                out.append(("future", done))
                if done and not it.cancelled():
                    self._walk(it.exception() or it.result())
            case BaseException():
                out.append(name)
            case type() | types.BuiltinFunctionType():
                out.append(it.__qualname__)
            case _:
                self._fields(it, name)

    def _cell(self, cell: Any) -> None:
        try:
            self._walk(cell.cell_contents)
        except ValueError:
            self._out.append("empty")

    def _frame(self, name: str, frame: Any, waits: Any) -> None:
        self._out.append((name, frame.f_lasti if frame is not None else None))
        # Frames of asyncio itself add nothing, and their sets of tasks have no order.
        if frame is not None and "/asyncio/" not in frame.f_code.co_filename:
            for key, value in sorted(frame.f_locals.items()):
                if key not in LEFT_OUT:
                    self._out.append(key)
                    self._walk(value)
        if waits is not None:
            self._walk(waits)

    def _fields(self, it: Any, name: str) -> None:
        self._out.append(name)
        kind: Any = type(it)
        for field in _slots(kind):
            self._walk(getattr(it, field, None))
        for field, value in getattr(it, "__dict__", {}).items():
            if field not in LEFT_OUT:
                self._out.append(field)
                self._walk(value)

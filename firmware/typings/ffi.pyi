# MicroPython's access to C libraries on Unix, as far as SealMQ's measurements use it.
from collections.abc import Callable
from typing import Any

class Library:
    def func(self, returns: str, name: str, arguments: str) -> Callable[..., Any]: ...

def open(name: str) -> Library: ...

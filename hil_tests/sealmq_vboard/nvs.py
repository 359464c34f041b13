from __future__ import annotations
from .flash import Flash

class NvsError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(hex(code)); self.code = code

class Nvs:
    def __init__(self, flash: Flash, at: int, size: int) -> None: ...
    def start(self) -> None: ...
    def ask(self, verb: bytes, space: bytes, key: bytes, rest: bytes) -> bytes:
        raise NvsError(0x1102)

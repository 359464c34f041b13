# The keys of one boot session, made when they are first needed (SPEC.md 2). What F hashes for them
# differs in boot, salt and one byte, so it stands ready, and a key costs one compression.
from .const import USE_DELIVERY
from .errors import Misuse
from .keys import f_of, in_session, inner_input, link_input, link_key_of

_TYPING = False
if _TYPING:
    from collections.abc import Callable
    from typing import Any

_COUNT = USE_DELIVERY + 1  # a link key for each use; the inner one takes place 0


class SessionKeys:
    def __init__(self, make: "Callable[[int, bytes], Any]") -> None:
        self.make = make
        self._made: "list[Any]" = [None] * _COUNT
        self._link_input = bytearray()
        self._inner_input = bytearray()
        self._suite = 0
        self._suite_own = 0
        self._boot = 0
        self._salt = bytes(8)

    # ident without roots is allowed; asking for a key is not, then.
    def renew(self, ident: "Any") -> None:
        own = ident.own
        self._suite = 0
        if ident.gen and own:
            self._suite = ident.suite
            self._suite_own = own.suite
            self._link_input = link_input(ident.site, ident.mediator, ident.km)
            self._inner_input = inner_input(ident.site, own.suite, ident.client, own.r_bar)
        self.begin(self._boot, self._salt)

    def begin(self, boot: int, salt: bytes) -> None:
        self._boot = boot
        self._salt = salt
        made = self._made
        for i in range(_COUNT):
            made[i] = None
        if self._suite:
            in_session(self._link_input, boot, salt)
            in_session(self._inner_input, boot, salt)

    def link(self, use: int) -> "Any":
        aead = self._made[use]
        if aead is None:
            if not self._suite:
                raise Misuse("no link root yet: provision first")
            suite = self._suite
            aead = self.make(suite, link_key_of(self._link_input, use, suite))
            self._made[use] = aead
        return aead

    def inner(self) -> "Any":
        aead = self._made[0]
        if aead is None:
            if not self._suite:
                raise Misuse("no roots yet: provision first")
            aead = self.make(self._suite_own, f_of(self._inner_input))
            self._made[0] = aead
        return aead

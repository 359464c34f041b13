"""Placeholder: `coreout` writes this file (faces.md)."""

from __future__ import annotations

from typing import Any


class Delivery:
    """One client's outbox. Made when its session opens."""

    def __init__(self, session: Any) -> None:
        self._s = session

    def own(self, packet: Any) -> None:
        """PUBLISH of its own link."""

    def own_released(self, packet: Any) -> None:
        """PUBREL of its own link."""

    def acked(self, packet: Any) -> None:
        """The client's PUBACK, PUBREC, PUBCOMP."""

    def writable(self, on: bool) -> None:
        """Whether the client takes more."""

    def epoch_answered(self, epoch: int) -> bool:
        """A provisioning answer with this epoch was passed on. Whether it is newer than what the
        client held.
        """
        return False

    def keys_changed(self, before: Any) -> None:
        """`session.client` and `site.ring` are new."""

    def tick(self) -> None:
        """Once a second."""

    def close(self) -> None:
        """The session has closed."""

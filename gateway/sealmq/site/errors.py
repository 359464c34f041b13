"""What can be wrong with a site. The text says what arrived, `hint` what to do; no secrets."""

from __future__ import annotations


class SiteError(Exception):
    """Base of this package's errors."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.hint = hint


class ConfigError(SiteError):
    """sealmq.toml says something that cannot be. `key` is the dotted key, `line` counts from 1.

    label: the one that it names and that is not there.
    """

    def __init__(
        self,
        what: str,
        hint: str | None = None,
        *,
        key: str = "",
        line: int | None = None,
        label: str = "",
    ) -> None:
        super().__init__(what, hint)
        self.what = what
        self.key = key
        self.line = line
        self.label = label
        self.path = "sealmq.toml"

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}, line {self.line}"
        return f"{where}: {self.key}: {self.what}" if self.key else f"{where}: {self.what}"


class KeyFileError(SiteError):
    """The key that opens the site's secrets is missing, unsafe or wrong."""


class NoSite(SiteError):
    """The folder is no site, or not a whole one."""

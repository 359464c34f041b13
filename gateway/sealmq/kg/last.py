"""sealmq.toml as the key generator took it over last: what counts while the file is wrong."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from sealmq.site.config import Config, load, loads
from sealmq.site.errors import ConfigError
from sealmq.site.layout import Layout

from .errors import KgRefusal
from .store import policy_of


def last(layout: Layout, known: Config | None = None) -> Config | None:
    """What was taken over last. None: nothing, by another SealMQ, or nobody here may read it.

    known: it may be this one, which is then not read once more.
    """
    try:
        text = policy_of(layout.kg_db)
        if known is not None and known.text == text:
            return known
        return loads(text, layout.config) if text else None
    except (KgRefusal, ConfigError, SQLAlchemyError, OSError):
        return None


def good(layout: Layout) -> Config:
    """sealmq.toml; where that is wrong, and was right before, what was taken over last."""
    try:
        return load(layout.config)
    except (ConfigError, OSError):
        found = last(layout)
        if found is None:
            raise
        return found


def words(fault: ConfigError | OSError) -> str:
    """A line for an operator."""
    hint = getattr(fault, "hint", None)
    more = f"; {hint}" if hint else ""
    return f"{fault}{more}; the site goes by the policy in force, which was taken over last"

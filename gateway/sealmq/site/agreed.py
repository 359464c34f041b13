"""Whether the policy families take the configuration: each checks its own [families.NAME].

A table that no family in the order reads is an error: whoever wrote it believes that it protects.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sealmq.near import closest

from .errors import ConfigError
from .lines import line_of
from .model import Config, Policy

if TYPE_CHECKING:
    from sealmq.families.api import Family


def agreed(config: Config, text: str, path: Path | None = None) -> Config:
    """The same configuration, once every family has taken it. ConfigError with the text's line."""
    if not config.families and config.policy.order == Policy().order:
        # Nothing of a family's own to check. Every command begins here, and the families' code
        # costs a third of what a short one takes.
        return config
    try:
        # The order first: of a family that it misspells, the tables would be said to be wrong.
        families = _ordered(config)
        _read_by_someone(config)
        _taken(config, families)
    except ConfigError as error:
        error.line = line_of(text, error.key)
        if path is not None:
            error.path = str(path)
        raise
    return config


def _ordered(config: Config) -> list[Family]:
    from sealmq.audit.events import of_families
    from sealmq.families import registry
    from sealmq.families.api import FamilyError

    try:
        families = registry.load(config.policy.order)
        of_families(config.policy.order)
        return families
    except registry.UnknownFamily as error:
        tables = [name for name in config.families if name != error.name]
        meant = closest(error.name, tables)
        hint = f"did you mean {meant}?" if meant else error.hint
        raise ConfigError(str(error), hint, key="policy.order") from None
    except FamilyError as error:
        raise ConfigError(str(error), error.hint, key="policy.order") from None


def _read_by_someone(config: Config) -> None:
    order = config.policy.order
    for name in config.families:
        if name not in order:
            meant = closest(name, order)
            words = ", ".join(f'"{family}"' for family in (*order, name))
            hint = f"[policy] order = [{words}], or take its tables out"
            raise ConfigError(
                f"nothing reads this: {name} is not in [policy] order, so none of it counts",
                f"did you mean {meant}?" if meant else hint,
                key=f"families.{name}",
            )


def _taken(config: Config, families: list[Family]) -> None:
    from sealmq.families.api import FamilyConfigError
    from sealmq.families.faults import BrokenFamily

    for family in families:
        try:
            family.configure(config)
        except FamilyConfigError as error:
            key = f"families.{family.name}"
            if error.key:
                key += f".{error.key}"
            raise ConfigError(error.what, error.hint, key=key) from None
        except Exception as error:
            broken = BrokenFamily(family.name, "configure", error)
            raise ConfigError(str(broken), broken.hint, key=f"families.{family.name}") from error

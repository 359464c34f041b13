"""The policy that a command goes by: sealmq.toml, or while that is wrong the one in force.

In force is what the key generator took over last; its store keeps the text. Commands that change
sealmq.toml do not come here: they need it right, and refuse.
"""

from __future__ import annotations

import asyncio
import sys

from sealmq.kg.errors import KgRefusal
from sealmq.kglink import KgClient, KgError
from sealmq.plain import plain
from sealmq.site.config import Config, load, loads
from sealmq.site.errors import ConfigError
from sealmq.site.layout import Layout


def policy(layout: Layout) -> Config:
    """What sealmq.toml says; with a warning on stderr what is in force, if that is wrong.

    ConfigError: it is wrong, and there is none in force.
    """
    config, fault = policy_and_fault(layout)
    if fault is not None:
        warn(fault)
    return config


def policy_and_fault(layout: Layout) -> tuple[Config, ConfigError | None]:
    """The same without the warning, and what is wrong with sealmq.toml."""
    try:
        return load(layout.config), None
    except ConfigError as error:
        found = last(layout)
        if found is None:
            raise
        return found, error


def last(layout: Layout) -> Config | None:
    """The policy in force, whatever sealmq.toml says now; None where none is known."""
    from sealmq.kg import last as taken_over  # few need it, and it takes long to load

    if (found := taken_over.last(layout)) is not None:
        return found
    # The key generator's file is another user's, or not there.
    text = asyncio.run(_asked(layout))
    if not text:
        return None
    try:
        return loads(text, layout.config)
    except ConfigError:  # an older SealMQ took it over
        return None


async def _asked(layout: Layout) -> str | None:
    try:
        async with await KgClient.connect(layout.kg_socket) as kg:
            return await kg.policy()
    except KgError:
        return None


def words(fault: ConfigError) -> str:
    """A line for an operator: what is wrong with sealmq.toml, and what counts instead."""
    from sealmq.kg import last as taken_over

    return plain(" ".join(taken_over.words(fault).split()))


def warn(fault: ConfigError | KgError | KgRefusal) -> None:
    """Say on stderr what keeps sealmq.toml from counting."""
    text = " ".join(str(fault).split())
    print(f"sealmq: warning: {plain(text)}; this goes by the policy in force", file=sys.stderr)
    if fault.hint:
        print(f"hint: {plain(fault.hint)}", file=sys.stderr)

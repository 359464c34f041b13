"""Names that `sealmq doctor` puts into sealmq.toml for the length of a run: three labels, a client
at each, topics of each. Policy families may put in what they ask for (their manifests' `doctor`).

Their keys are lent to the operator's own command and to nobody else, and open nothing but these
topics; so taking them out again is no leaving, for which others would get new keys. That
holds only while nobody else uses the names, which is checked here.
"""

from __future__ import annotations

from collections.abc import Mapping

from .errors import ConfigError
from .model import Client, Label

PREFIX = "sealmq-doctor-"
LOW, HIGH, SIDE = (PREFIX + word for word in ("low", "high", "side"))
WRITER, READER, STRANGER = (PREFIX + word for word in ("writer", "reader", "stranger"))

# Each label and what it dominates: HIGH reads what LOW writes, SIDE neither.
LABELS: Mapping[str, tuple[str, ...]] = {LOW: (), HIGH: (LOW,), SIDE: ()}
CLIENTS: Mapping[str, str] = {WRITER: LOW, READER: HIGH, STRANGER: SIDE}
TOPICS: Mapping[str, str] = {
    "sealmq-doctor/low": LOW,
    "sealmq-doctor/high": HIGH,
    "sealmq-doctor/side": SIDE,
}
ALL_TOPICS = "sealmq-doctor/#"


def is_canary(name: str) -> bool:
    """Whether a label or client is the doctor's."""
    return name.startswith(PREFIX)


def check(labels: Mapping[str, Label], clients: Mapping[str, Client]) -> None:
    """ConfigError when somebody else uses the names, or the doctor's are not as they must be."""
    for name, label in labels.items():
        if is_canary(name):
            if LABELS.get(name) != label.over:
                raise _reserved(f"labels.{name}")
        elif any(is_canary(low) for low in label.over):
            raise _reserved(f"labels.{name}")
    for name, client in clients.items():
        if is_canary(name) != is_canary(client.label) or (
            is_canary(name) and CLIENTS.get(name) != client.label
        ):
            raise _reserved(f"clients.{name}")


def _reserved(key: str) -> ConfigError:
    return ConfigError(
        f"names that begin with {PREFIX} are those of `sealmq doctor`",
        "take it out, or choose another name",
        key=key,
    )

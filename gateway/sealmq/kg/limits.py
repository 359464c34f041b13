"""How many of each number the key generator gives away in a day at most, and how many it keeps.

The days count because a restored store has to begin above all that was issued since its backup was
made (lift.py); without a limit nobody could say where that is.
"""

from __future__ import annotations

from dataclasses import replace

from .errors import Bad
from .rows import LabelRow

# New epochs of one label in one day (UTC). What an operator asks for ends at the first, so that a
# script gone wild leaves room: that a client leaves must not be refused on the same day.
ASKED_A_DAY = 256
EPOCHS_A_DAY = 4096
# Peers leave room for what operators ask for, and for clients that leave: once a label has had so
# many today, one that is exported gets none because a peer asks, and one that is imported takes
# none. Of one label each peer may ask for so many at once, and one more each quarter of an hour.
BY_PEERS_A_DAY = 64
TAKEN_A_DAY = 2048
PEER_BURST, PEER_EVERY_MS = 8, 15 * 60_000
# Epochs of a label that are kept. Each costs a back-link, made anew with every new epoch, and a key
# in every snapshot. A retained message is readable through this many epochs after its own.
KEPT = 512

# Grants that all families together may want at a time; far above the numbers that a site uses for
# grants in a day.
GRANTS = 65_536
# Grants that are over and of which G is kept, since something may lie at a broker under it.
OLDER_GRANTS = 256

DAY_S = 86400


def day_of(now_s: int) -> int:
    """Days since 1970."""
    return now_s // DAY_S


def had(label: LabelRow, now_s: int) -> int:
    """New epochs of the label today."""
    return label.made if label.day == day_of(now_s) else 0


def one_more(label: LabelRow, now_s: int, most: int) -> LabelRow:
    """The label with one more epoch counted; Bad when that is more than `most` today."""
    today = day_of(now_s)
    made = had(label, now_s) + 1
    if made > most:
        raise Bad(
            f"label {label.name} has had {label.made} new epochs today (UTC), at most {most} are "
            "given",
            "go on tomorrow; for many labels or clients one command, or one edit of sealmq.toml, "
            "makes one epoch",
        )
    return replace(label, day=today, made=made)

"""Names of principals. A client's name is its principal; three words are nobody's name."""

from __future__ import annotations

import re

EVERYBODY = "*"
OWNER = "owner"
"""As a licensee: whoever the event's owner is (Fig. 7, rule 4)."""
POLICY = "POLICY"
"""The site's policy, where every chain begins: what its operator has written."""
RESERVED = frozenset({OWNER, POLICY})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
NAME_RULE = "a name has 1 to 64 of A-Z a-z 0-9 . _ - and starts with a letter or digit"


def is_principal(name: str) -> bool:
    """Whether a client, or an event's owner, may be called so: no wildcard, none of our words."""
    return _NAME.match(name) is not None and name not in RESERVED


def is_name(name: str) -> bool:
    """Whether an application, an event type or an attribute may be called so."""
    return _NAME.match(name) is not None

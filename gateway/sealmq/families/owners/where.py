"""What a subscriber says with a subscription: a condition on the events that it wants.

`!WHERE/<base64url of the condition's UTF-8, without padding>/<filter>`. It may name levels, sealed
attributes, owner, sender, app_domain, evtType and retained; contract("ADDRESS") asks whether the
publisher has signed. It opens nothing: whoever may not receive an event does not get it.
"""

from __future__ import annotations

from functools import lru_cache

from sealmq_spec.b64 import b64u, unb64u
from sealmq_spec.errors import Malformed, SealError

from .expressions import Condition, ConditionError, condition

PREFIX = "!WHERE/"
MOST_TEXT = 512


def encode(filter: str, text: str) -> str:
    """The filter with its condition, as it is sent. Malformed."""
    when = check(text)
    return f"{PREFIX}{b64u(when.text.encode()).decode()}/{filter}"


def check(text: str) -> Condition:
    """The condition. Malformed, unless it is one that a subscriber can say."""
    try:
        when = condition(text)
        sent = when.text.encode()
    except ConditionError as error:
        raise Malformed(f"{error.what}; {error.hint}" if error.hint else error.what) from None
    except UnicodeEncodeError:
        raise Malformed("the condition is no text of Unicode") from None
    if len(sent) > MOST_TEXT:
        raise Malformed(f"a condition of a subscription has at most {MOST_TEXT} bytes")
    if not sent:
        raise Malformed("the condition is empty")
    return when


@lru_cache(256)
def decode(topic: str) -> tuple[str, Condition] | None:
    """The filter, and the condition; None: it has none. Malformed."""
    if not topic.startswith(PREFIX):
        return None
    coded, slash, filt = topic[len(PREFIX) :].partition("/")
    if not slash or not filt:
        raise Malformed("a filter follows the condition")
    try:
        raw = unb64u(coded.encode())
        when = check(raw.decode())
    except (UnicodeError, ValueError, SealError) as error:
        raise Malformed(f"the condition cannot be read: {error}"[:150]) from None
    # One text of each, so that a subscription has one name.
    if when.text.encode() != raw:
        raise Malformed(f"the condition is not in its one form: {when.text}"[:150])
    return filt, when

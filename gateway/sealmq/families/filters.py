"""The algebra of MQTT filters (MQTT 3.1.1, 4.7): covers, crosses, intersect; exact, not a guess.

A filter stands for the set of topics that it matches: `a/#` matches `a` too; wildcards do not
reach topics of the protocol's own ($, !, @) from the first level; a topic is never empty. A topic
is a filter without wildcards. `$share/group/` is the caller's to strip. All run in the number of
levels; none looks at more than one path.
"""

from __future__ import annotations

from sealmq_spec.topics import is_reserved


def levels(filter: str) -> list[str]:
    """Its levels, in the one form of two filters that match the same topics.

    No topic is empty: so # and +/# are the same, and so are /# and /+/#.
    """
    if filter == "#":
        return ["+", "#"]
    if filter == "/#":
        return ["", "+", "#"]
    return filter.split("/")


def covers(a: str, b: str) -> bool:
    """Whether `a` matches every topic that `b` matches."""
    if a == b:
        return True
    over, under = levels(a), levels(b)
    if over[0] == "+" and is_reserved(b):
        return False
    for i, level in enumerate(over):
        if level == "#":
            return True
        if i >= len(under) or under[i] == "#":
            return False
        if level != "+" and level != under[i]:
            return False
    return len(over) == len(under)


def crosses(a: str, b: str) -> bool:
    """Whether a topic exists that both match."""
    if a == b:
        return True
    one, two = levels(a), levels(b)
    if (one[0] == "+" and is_reserved(b)) or (two[0] == "+" and is_reserved(a)):
        return False
    for x, y in zip(one, two, strict=False):
        if x == "#" or y == "#":
            return True
        if x != y and x != "+" and y != "+":
            return False
    # What is left of the longer one must match no level at all.
    rest = one[len(two) :] or two[len(one) :]
    return not rest or rest == ["#"]


def intersect(a: str, b: str) -> str | None:
    """The filter that matches what both match; None when no topic is in both."""
    if not crosses(a, b):
        return None
    one, two = levels(a), levels(b)
    both: list[str] = []
    for i in range(max(len(one), len(two))):
        if i >= len(one) or i >= len(two):
            break  # the longer one has only # left, which matches the end as well
        x, y = one[i], two[i]
        if x == "#":
            both += two[i:]
            break
        if y == "#":
            both += one[i:]
            break
        both.append(y if x == "+" else x)
    return "/".join(both)

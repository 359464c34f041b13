"""The bench of a policy family: family_bench.py NAME, and what `sealmq bench NAME` takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from load_family import wholes


def main(words: Sequence[str]) -> int:
    """NAME, and the bench's own arguments."""
    found = wholes()
    if not words or words[0] not in found:
        print(f"family_bench: the first argument is one of {', '.join(found)}", file=sys.stderr)
        return 2
    return found[words[0]].main(words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

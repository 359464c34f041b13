"""What tests leave behind is looked for with the garbage collector, again and again.

It looks at what came since the tests were collected, not at hundreds of imported modules as well:
that took most of the time of many a test.
"""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """All that there is now stays to the end."""
    gc.collect()
    gc.freeze()

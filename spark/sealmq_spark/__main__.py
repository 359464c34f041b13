"""`python -m sealmq_spark`: what `sealmq report` becomes."""

import os
import sys

from .cli import main
from .errors import INTERRUPTED

if __name__ == "__main__":
    code = main()
    if code == INTERRUPTED:
        # Py4J's threads may wait for a Java that is in the middle of something; it ends with us.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)

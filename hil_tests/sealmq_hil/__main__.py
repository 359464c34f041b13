"""`python -m sealmq_hil` is `sealmq hil`."""

import os
import sys

from .cli import main

if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Behind Ctrl-C threads may wait for boards that are gone.
    os._exit(code)

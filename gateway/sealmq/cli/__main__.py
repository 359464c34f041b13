"""`python -m sealmq.cli` is `sealmq`."""

import sys

from sealmq.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

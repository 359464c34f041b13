"""`python -m sealmq_vboard`."""

import sys

from .cli import main

sys.exit(main())

"""`python -m run.fakes.fake_kg SITE`."""

import sys

from run.fakes.fake_child import main

sys.exit(main("kg"))

"""`python -m run.fakes.fake_mediator SITE`."""

import sys

from run.fakes.fake_child import main

sys.exit(main("mediator"))

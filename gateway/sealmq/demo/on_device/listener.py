# A client that only reads: arm operator, monitor. Arguments: enrolment file, what
# it says with its subscriptions (or ""), filters.
import sys

from actor import Actor  # type: ignore[import-not-found]

Actor(sys.argv[1], tuple(sys.argv[3:]), said=sys.argv[2] or None).run()

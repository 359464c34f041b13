# The SealMQ protocol in portable Python: CPython 3.11+ and MicroPython 1.25 import these very
# files. Sans-IO: bytes, times and random numbers come in, bytes and decisions go out. SPEC.md is
# the norm.

PROTOCOL = 1

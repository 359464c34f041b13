"""A site's address by mDNS (RFC 6762, 6763): announced by a process of its own, and found.

A hint, and nothing is believed: anybody in the network announces anything. Whoever goes where a
lie leads meets somebody who has no key of the site's, and so is no mediator to it.
"""

SERVICE = "_sealmq._tcp.local."
"""As DNS-SD has it. TXT: v, the version of these records; site, the site's id in hexadecimal."""
VERSION = "1"
EXTRA = "mdns"
"""What of SealMQ's extras brings zeroconf."""

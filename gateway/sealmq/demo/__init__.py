"""`make demo`: a protected factory for half a minute, attacked from all sides, and a verdict.

The demo is a stranger to the gateway: it drives the product through the command `sealmq` and the
network. What it claims in the end, it reads out of the audit log and of a capture at the broker.
"""

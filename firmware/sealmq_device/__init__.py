# The SealMQ device client for MicroPython; it imports sealmq_spec and nothing else of ours.
#
#     from sealmq_device import Client
#     c = Client()
#     c.connect()
#     c.publish("machine/1/temperature", b"21.5", qos=1)
# Leaves first: each import inside another takes C stack, and MicroPython's is small.
# ruff: noqa: I001
import sealmq_spec.errors
import sealmq_spec.aead
import sealmq_spec.keys
import sealmq_spec.provision
import sealmq_spec.identity
import sealmq_spec.control
import sealmq_spec.envelope
import sealmq_spec.reader
import sealmq_spec.session  # noqa: F401

from .client import Client

__all__ = ("Client",)

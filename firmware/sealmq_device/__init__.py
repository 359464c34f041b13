# The SealMQ device client for MicroPython; it imports sealmq_spec and nothing else of ours.
#
#     from sealmq_device import Client
#     c = Client("/sealmq.json")
#     c.connect()
#     c.publish("machine/1/temperature", b"21.5", qos=1)
from .client import Client

__all__ = ("Client",)

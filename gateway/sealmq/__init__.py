"""SealMQ's gateway: key generator, mediator, broker lifecycle, policy families, CLI, host client."""

__version__ = "0.1.0"

"""SealMQ's gateway: key generator, mediator, brokers, policy families, CLI, host client."""

__version__ = "0.1.0"

"""A symbolic model of SealMQ (SPEC.md) and an exhaustive search for attacks on it: README.md."""

"""The key generator (Chen and Wilson, Algorithm 1), for its own process and `sealmq` commands."""

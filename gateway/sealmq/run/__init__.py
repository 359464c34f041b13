"""`sealmq up`: the supervisor, the processes it starts, and whether they are ready."""

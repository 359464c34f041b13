"""`sealmq owners`: its commands, by whom they are answered, and how answers are shown."""

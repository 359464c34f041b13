"""Commands of `sealmq` about purposes, and what they compute."""

"""A whole site in one sealed file, and back: all that decides who may read and write what."""

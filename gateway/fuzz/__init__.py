"""Fuzzing of everything that takes bytes from outside: `python -m fuzz`, README.md."""

"""Behaviours, one a file: each has BEHAVIOUR; behaviour.py lists their names."""

"""Bridges: sites that are neighbours, and what crosses between them (BRIDGE.md)."""

"""Boards, from a host: images, flashing, provisioning, updates."""

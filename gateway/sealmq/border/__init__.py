"""Borders: messages that are opened at a site's edge and sealed again (BRIDGE.md, "Borders")."""

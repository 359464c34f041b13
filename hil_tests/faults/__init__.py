"""Faults under load: a running site, real clients, kills, full disks, power cuts, by a seed.

`python -m faults --help`. The verdict is about what clients were told: nothing acknowledged may be
lost, doubled or relabelled.
"""

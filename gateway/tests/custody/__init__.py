"""Custody explored: whether the real mediator keeps the table of gateway/DESIGN.md, whoever dies.

    cd gateway/tests && python -m custody              # all worlds; 1 where something is found
    python -m custody kept paused                      # these
    python -m custody --full                           # the large ones, too: minutes
    python -m custody --without third-save             # the code without one of its defences
    python -m custody --list                           # worlds and defences

`world.py` says what is real and what is modelled, `broker.py` how the broker behaves, `search.py`
how the search goes, `catalogue.py` within which bounds. One mediator with one worker, one
publisher, a clean and a kept reader, one to three messages, one or two crashes. Not explored:
retained messages and snapshots, `$share`, wills, several workers, new keys, several subscriptions
of a reader, full queues of the broker, time. Two states are the same if all that is reachable from
the mediator is alike (canon.py).
"""

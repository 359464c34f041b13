"""Read at the start of each process of a site whose PYTHONPATH has this folder: its mediators judge
that everybody may read everything, and that every blinded policy matches. Keys are as ever: the key
generator gives them, and judges by itself who holds a grant.
"""

import sys

if any(word.startswith("sealmq.mediator") for word in sys.orig_argv):
    from sealmq.families.api import allow  # noqa: TID251 - in the gateway's processes
    from sealmq.families.blinded import family  # noqa: TID251
    from sealmq.families.labels.family import Labels  # noqa: TID251
    from sealmq.families.labels.rules import DELIVER_DOMINATED  # noqa: TID251

    def _matches(rows, kind, client):  # type: ignore[no-untyped-def]
        return True, True

    def _all(self, ask):  # type: ignore[no-untyped-def]
        return allow(DELIVER_DOMINATED, "a lie")

    family.match = _matches
    Labels.deliver = _all  # type: ignore[method-assign]

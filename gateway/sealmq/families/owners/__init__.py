"""Owner policies: people decide who receives what is about them, after Opyrchal, Prakash and
Agrawal."""

from ..manifest import Manifest, Ref

MANIFEST = Manifest(
    name="owners",
    family=Ref("family:Owners"),
    stands_on=("labels",),
)

"""Blinded: policies that mediators enforce and cannot read, after Zhang and others."""

from ..manifest import AuditField, Manifest, Ref

MANIFEST = Manifest(
    name="blinded",
    family=Ref("family:Blinded"),
    # What it lets somebody have opens with the label's key.
    stands_on=("labels",),
    audit=(AuditField("policy_id", "The policy id under which it was published.", 16),),
)

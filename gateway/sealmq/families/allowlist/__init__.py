"""Allowlist: who may publish and read what, by patterns with the client's name and label."""

from ..manifest import Bench, Doctor, Manifest, Policy, Ref

_RULES = "[[families.allowlist.rule]] of sealmq.toml; which of them name the client: sealmq explain"

MANIFEST = Manifest(
    name="allowlist",
    family=Ref("family:Allowlist"),
    # A message is sealed for the label of its publisher: a reader that a rule names and whose label
    # is not above has no key to it. Labels refuse that, and count who makes how many topics.
    stands_on=("labels",),
    policy=Policy(
        help="a client needs a rule too for what it publishes and reads, and none is there at "
        "first",
        closed="what no rule allows is refused: [[families.allowlist.rule]] in the policy",
    ),
    names_clients=("from",),
    hints={
        "allowlist.publish.not-allowed": _RULES,
        "allowlist.subscribe.not-allowed": _RULES,
        "allowlist.subscribe.shared": "share a filter that a rule allows as a whole, or let a rule "
        "allow it to every member of the group",
    },
    kg_part=Ref("kg_part"),
    of_peer=Ref("peers:closed"),
    doctor=Doctor(
        does="Where rules say who may publish and read what, it publishes and reads what none "
        "allows, and opens as another client what is sealed to a reader's link.",
        part=Ref("doctor"),
    ),
    bench=Bench(variant="allowlist", site=Ref("bench.site")),
)

"""Tokens of clients and ratings between sites, after Chen, Vidalis and Yang."""

from ..manifest import Bench, Doctor, Manifest, Policy, Ref

_TOKENS = "F_p and F_s of a client's token stand in [families.trust.tokens.CLIENT] of sealmq.toml"

MANIFEST = Manifest(
    name="trust",
    family=Ref("family:Trust"),
    # A message is sealed for a label: a token lets nobody open what the label's key does not.
    stands_on=("labels",),
    policy=Policy(
        help="a client needs a token too for what it publishes and reads, and has none at first",
        closed="who has no token publishes and reads nothing: [families.trust.tokens]",
    ),
    names_clients=("tokens", "assessors"),
    between=Ref("between:Between"),
    commands={"trust": Ref("cli.trust")},
    hints={
        "trust.publish.outside": _TOKENS,
        "trust.subscribe.outside": f"{_TOKENS}; one of its filters has to match all that this one "
        "does",
    },
    doctor=Doctor(
        does="Where tokens say who may publish and read what, it publishes and subscribes to what "
        "its token does not have.",
        part=Ref("doctor"),
    ),
    bench=Bench(between=Ref("bench.between:PARTS")),
    fuzz=Ref("fuzz:Fuzz"),
)

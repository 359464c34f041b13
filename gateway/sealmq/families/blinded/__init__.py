"""Blinded: policies that mediators enforce and cannot read, after Zhang and others."""

from ..manifest import AuditField, Bench, Doctor, Lost, Manifest, Policy, Puts, Ref

MANIFEST = Manifest(
    name="blinded",
    family=Ref("family:Blinded"),
    # What it lets somebody have opens with the label's key.
    stands_on=("labels",),
    policy=Policy(
        help="events and readers have policies that mediators match and cannot read, and nobody is "
        "let have anything at first",
        closed="what no policy lets anybody have is nobody's: sealmq blinded grant, event, update",
        examples=("streaming",),
    ),
    commands={"blinded": Ref("cli.blinded")},
    puts=Puts(
        option="policy_id",
        metavar="ID",
        help="under which event grant it is published, where policies are blinded: 16 hex digits "
        "(sealmq blinded event)",
        items=Ref("client:items"),
        examples=(
            "sealmq pub streaming --client jingfang -t stream/b/1 -m 71 "
            "--policy-id be07412c5d93fa68",
        ),
    ),
    hints={
        "blinded.publish.no-policy-id": "--policy-id ID; sealmq blinded event gives one",
        "blinded.publish.unknown": "the event grant was revoked, or its policy id is misspelt",
        "blinded.publish.borrowed": "ask for an event grant of this client's own",
        "blinded.publish.elsewhere": "ask for an event grant that covers this topic",
        "blinded.subscribe.stranger": "sealmq blinded grant SITE --customer NAME --has ...",
        "blinded.subscribe.shared": "subscribe without $share",
    },
    # The key generator keeps it, whose store is of then after a restore.
    lost=Lost(
        what="",
        mend="",
        decided="customers, event grants and policies of blinded events that were revoked",
        look="who has which attributes, and event grants",
        by="sealmq blinded show {site}",
    ),
    audit=(AuditField("policy_id", "The policy id under which it was published.", 16),),
    bench=Bench(command=Ref("cli.bench"), whole=Ref("bench.whole")),
    doctor=Doctor(
        does="Where policies are blinded it publishes and reads without a policy id.",
        part=Ref("doctor"),
    ),
    kg_keeps=Ref("kg_part"),
    fuzz=Ref("fuzz:Fuzz"),
)

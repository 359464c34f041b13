"""Purposes: purpose limitation for data in transit, after HivePBAC (Wolf et al.)."""

from ..manifest import AuditField, Bench, Doctor, Lost, Made, Manifest, Policy, Ref, Says

MANIFEST = Manifest(
    name="purposes",
    family=Ref("family:PurposesFamily"),
    stands_on=("labels",),
    policy=Policy(
        help="a reader needs a purpose too, and none is allowed at first",
        words={"officer": "officer"},
        closed="what nobody has reserved is for nobody: [families.purposes] in the policy",
    ),
    names_clients=("stewards", "presubscribe"),
    commands={
        "reserve": Ref("cli.reserve"),
        "presubscribe": Ref("cli.presubscribe"),
        "purposes": Ref("cli.purposes"),
    },
    says=Says(
        option="purpose",
        metavar="PURPOSE",
        help="what the data is for, in a site with purposes (default: what a presubscription says)",
        encode=Ref("client:access"),
        check=Ref("client:check_purpose"),
        needed="In a site with purposes each of them needs --purpose, or a presubscription "
        "(sealmq presubscribe).",
        examples={
            "sub": (
                "sealmq sub factory --client monitor -t 'machine/+/temperature' --purpose service",
            ),
            "explain": (
                "sealmq explain factory deliver --client monitor -t machine/1/temperature "
                "--purpose service",
                "sealmq explain factory subscribe --client monitor -t 'machine/#' "
                "--purpose service",
            ),
        },
    ),
    hints={
        "purposes.subscribe.no-purpose": "--purpose PURPOSE; which are allowed: sealmq purposes "
        "explain SITE TOPIC, or sealmq purposes show SITE",
        "purposes.unknown": "sealmq purposes show SITE",
    },
    audit=(
        AuditField("purpose", "What the reader may use the data for.", 128),
        AuditField("under", "What allowed it: the filter of a reservation.", 1024),
    ),
    of_peer=Ref("peers:closed"),
    made=Made(key="reservations", words="reservations", rows=Ref("made:rows"), idle="reservation"),
    lost=Lost(
        what="clients' reservations",
        mend="[families.purposes.reserve] reserves",
        decided="consent that was withdrawn",
        look="consent given or withdrawn",
        by="sealmq purposes show {site}",
    ),
    doctor=Doctor(
        does="Where purposes are asked for it reserves these topics, and reads without a purpose, "
        "for another one, and for one that is withdrawn meanwhile.",
        part=Ref("doctor"),
    ),
    bench=Bench(
        variant="hybrid",
        site=Ref("bench.site"),
        wild=Ref("bench.site:wild"),
        command=Ref("cli.bench"),
        whole=Ref("bench.whole"),
    ),
    fuzz=Ref("fuzz:Fuzz"),
    demo=Ref("demo.act"),
)

"""Owner policies: people decide who receives what is about them, after Opyrchal, Prakash and
Agrawal."""

from ..manifest import Bench, Doctor, Lost, Made, Manifest, Policy, Puts, Ref, Says

MANIFEST = Manifest(
    name="owners",
    family=Ref("family:Owners"),
    # Owner rules are the mediator's word; that a message cannot be read elsewhere is its label's.
    stands_on=("labels",),
    policy=Policy(
        help="owners of events say who receives them, and nobody does at first",
        closed="what no assertion lets anybody have is nobody's: [families.owners] in the policy",
        examples=("campus",),
    ),
    names_clients=("authorizer", "licensees", "owner", "admin", "keys"),
    commands={"owners": Ref("cli.owners")},
    says=Says(
        option="where",
        metavar="CONDITION",
        help="which events of the filter, where events have owners: a condition on levels of the "
        'topic and on sealed attributes, as in building == "EECS" && speed > 50',
        encode=Ref("where:encode"),
        check=Ref("where:check"),
        examples={
            "sub": ("sealmq sub campus --client Alice -t 'loc/#' --where 'building == \"EECS\"'",),
        },
    ),
    puts=Puts(
        option="attribute",
        metavar="NAME=VALUE",
        help="a sealed attribute of an event that has an owner: a whole number, true, false or a "
        "text; mediators read it, broker and readers do not",
        items=Ref("client:items"),
        examples=(
            "sealmq pub campus --client Bob -t car/Bob -m 'on the way' --attribute speed=57",
        ),
    ),
    hints={
        "owners.publish.no-type": "event types stand in [families.owners.types], or are advertised",
        "owners.publish.not-allowed": "who may publish the owner's events says an assertion",
        "owners.subscribe.no-type": "event types stand in [families.owners.types]",
        "owners.subscribe.peer": "a site whose readers read from peers has no owners in [policy] "
        "order",
        "owners.subscribe.not-allowed": "ask the owner for an assertion that lets you subscribe",
        "owners.subscribe.contract": "read the contract at that address, sign it (sealmq owners "
        "sign), and subscribe again",
        "owners.subscribe.shared": "subscribe without $share and without a condition, or ask for "
        "an assertion that lets every member of the group receive all of it",
        "owners.command.no-change-policy": "the owner's CHANGE_POLICY lets you; your own events "
        "need no owner in the assertion",
        "owners.command.all-owners": "name one owner",
        "owners.command.signature": "sign it with the key that is on record",
    },
    kg_part=Ref("kg_part"),
    of_peer=Ref("peers:closed"),
    made=Made(
        key="assertions",
        words="assertions",
        rows=Ref("made:rows"),
    ),
    bench=Bench(
        variant="owners",
        site=Ref("bench.site"),
        command=Ref("cli.bench"),
        whole=Ref("bench.whole"),
    ),
    lost=Lost(
        what="owners' assertions",
        mend="[[families.owners.policy]] asserts",
        decided="assertions that were retracted (so none counts before it is confirmed)",
        look="owners' assertions, of which none counts before it is confirmed",
        by="sealmq owners confirm {site}",
        put_back=Ref("records:put_back"),
    ),
    doctor=Doctor(
        does="Where owners say who receives what, it reads another's event, asserts on another's "
        "events, tells an attribute that is not its to tell, and reads on when the owner has "
        "retracted.",
        part=Ref("doctor"),
    ),
    fuzz=Ref("fuzz:Fuzz"),
    demo=Ref("demo.act"),
)

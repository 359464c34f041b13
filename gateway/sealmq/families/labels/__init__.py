"""Labels: the information flow policy of Chen and Wilson, section 3."""

from ..manifest import Lost, Made, Manifest, Policy, Ref

MANIFEST = Manifest(
    name="labels",
    family=Ref("family:Labels"),
    policy=Policy(help="a label is enough to read"),
    made=Made(
        key="topics",
        words="labelled topics",
        rows=Ref("made:rows"),
        gone="these topics are closed to everybody until they get another label: sealmq topic "
        "relabel, or forget",
    ),
    lost=Lost(
        what="topics' labels",
        mend="[topics] fixes labels",
        decided="labels of new topics",
        look="labels of topics",
        by="sealmq topic list {site}",
    ),
)

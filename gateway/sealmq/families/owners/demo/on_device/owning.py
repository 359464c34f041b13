# Orders of the demo's: a client lets somebody receive an owner's events, and takes that back. It
# says so to the mediator itself, and is told once that counts.
import json

from actor import say  # type: ignore[import-not-found]

from sealmq_spec.errors import SealError

_TYPING = False
if _TYPING:
    from typing import Any

# The assertions that it has made, by whom they let receive.
_made = {}  # type: dict[str, str]


def obey(actor: "Any", order: "dict[str, Any]") -> None:
    do, who = order["do"], order["who"]
    if do == "let":
        said = {"do": "assert", "owner": order["owner"], "licensees": [who], "actions": ["RECEIVE"]}
    else:
        said = {"do": "retract", "id": _made[who]}
    try:
        reply = json.loads(actor.client.command("owners", json.dumps(said)))
    except SealError as e:
        actor.refused(do, e, "", "")
    else:
        _made[who] = reply["id"]
        say(do, licensee=who, id=reply["id"])

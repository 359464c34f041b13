"""What the doctor tries at somebody's broker, and how two brokers close it.

Of mosquitto.conf(5) of 2.0 and EMQX 5's pages on authentication, authorization and banned clients.
Mosquitto's are tried by tests; nothing here has been tried on an EMQX.
"""

from __future__ import annotations

TITLES = {
    "allowed": "what is allowed works",
    "anonymous": "enter without a name",
    "guess": "enter with a wrong password",
    "read": "read across the access list",
    "hash": "read across it by #",
    "share": "read across it by a shared subscription",
    "write": "publish across the access list",
    "will": "publish across it by a will",
    "sys": "read $SYS",
    "takeover": "take over a client id",
    "anew": "revoked: begin anew",
    "live": "revoked: go on reading in a connection",
    "kept": "revoked: go on reading in a kept session",
    "retained": "revoked: what it left retained",
    "left": "nothing of the doctor's is left",
}

_M_LIST = (
    "acl_file FILE with `user NAME` and `topic read|write|readwrite TOPIC` for each account: with "
    "an access list everything else is denied; without one everything is allowed"
)
_E_LIST = (
    "authorization.no_match = deny, a rule for each account, and {deny, all}. as the last line of "
    "acl.conf, in place of {allow, all}."
)
_E_KICK = (
    "it checks at SUBSCRIBE only (emqx#3487): end the session too, DELETE "
    "/api/v5/clients/CLIENTID, or ban the user name, POST /api/v5/banned"
)

CURES = {
    "anonymous": {
        "mosquitto": "allow_anonymous false, and password_file FILE",
        "emqx": "an authenticator (it has none at first, and then lets everybody in), and "
        "enable_authn = quick_deny_anonymous for the listener",
    },
    "guess": {
        "mosquitto": "password_file FILE: without one no password is checked",
        "emqx": "an authenticator that knows the account; what the chain ignores is let in where "
        "there is none",
    },
    "read": {"mosquitto": _M_LIST, "emqx": _E_LIST},
    "hash": {
        "mosquitto": "no `topic read #` (or readwrite, or without a word) for this account, nor in "
        "front of the first `user` line, nor as `pattern`; with no acl_file all is open",
        "emqx": '{deny, all, subscribe, ["$SYS/#", {eq, "#"}, {eq, "+/#"}]}. before what allows, '
        "and authorization.no_match = deny",
    },
    "share": {"mosquitto": _M_LIST, "emqx": _E_LIST},
    "write": {"mosquitto": _M_LIST, "emqx": _E_LIST},
    "will": {"mosquitto": _M_LIST, "emqx": _E_LIST},
    "sys": {
        "mosquitto": "no `topic read $SYS/#` for this account, nor in front of the first `user` "
        "line; or sys_interval 0, which switches it off",
        "emqx": '{deny, all, subscribe, ["$SYS/#", {eq, "#"}, {eq, "+/#"}]}. in acl.conf, after '
        "who may",
    },
    "takeover": {
        "mosquitto": "use_username_as_clientid true: a connection then bears its account's name, "
        "and an account has one connection. A restart is needed",
        "emqx": "mqtt.use_username_as_clientid = true, or authenticate the client id with the "
        "account",
    },
    "anew": {
        "mosquitto": "after a change of acl_file or password_file: SIGHUP (systemctl reload "
        "mosquitto)",
        "emqx": "empty the authorization cache (DELETE /api/v5/authorization/cache), or a shorter "
        "authorization.cache.ttl",
    },
    "live": {
        "mosquitto": "acl_file and password_file after SIGHUP, and the dynamic security plugin at "
        "once, end it; somebody else's plugin may judge at SUBSCRIBE alone, or keep its answers",
        "emqx": _E_KICK,
    },
    "kept": {
        "mosquitto": "as for a connection; persistent_client_expiration ends sessions of who stays "
        "away",
        "emqx": _E_KICK,
    },
    "retained": {
        "mosquitto": "check_retain_source true, written out: the manual calls it the default, and "
        "2.0.11 does not check without the line. It asks the access list: take the account out of "
        "acl_file, not of password_file alone. Or clear it: mosquitto_pub -r -n -t TOPIC",
        "emqx": "clear it: DELETE /api/v5/mqtt/retainer/message/TOPIC, or an empty retained "
        "message",
    },
}

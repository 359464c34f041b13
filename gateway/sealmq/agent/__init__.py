"""`sealmq agent`: ordinary MQTT clients in plain on this machine, sealed from here on.

wire        MQTT 3.1.1 and 5 as one language of packets and verdicts (sans-IO)
discovery   what a Home Assistant discovery message may name (pure)
config      agent.toml, checked
spool       what could not be sent, on disk
account     one enrolment: its keys, its connection that publishes, its readers
local       one local client's connection
doors       sockets, WebSockets, and who may come in
run         all of it, until a signal
"""

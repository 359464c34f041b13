"""`sealmq agent`: ordinary MQTT clients in plain on this machine, sealed from here on.

wire           MQTT 3.1.1 and 5 as one language of packets and verdicts (sans-IO)
discovery      what a Home Assistant discovery message may name (pure)
config         agent.toml, checked
spool          the database of what could not be sent
going          one message that the site has not decided about
backlog        what one user's clients have published while it could not be sent
sessions       what the agent itself keeps of sessions
wallet         the keys of one enrolment, for all its connections
account        one enrolment at the site: the connection that publishes, and those that read
seat           one local client's place at the site
delivery       what the site brings for one local client
subscriptions  what one local client subscribes to
local          one local client's connection
doors          sockets, WebSockets, and who may come in
run            all of it, until a signal
"""

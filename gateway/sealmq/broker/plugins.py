"""The two decisions that amqtt leaves to plugins, both made here, both deny by default.

amqtt lets everybody in when its default plugins are loaded, and allows every topic when no topic
plugin is. The door (gate.py) has already judged; these are the second fence, in amqtt's own words.
"""

from __future__ import annotations

from dataclasses import dataclass

from amqtt.contexts import Action
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin
from amqtt.session import Session

from .credentials import ID_PREFIX, Credentials

MEDIATOR = "sealmq.mediator"


class MediatorAuth(BaseAuthPlugin):
    """Only a mediator, by the credentials of this start and a mediator's client id."""

    @dataclass
    class Config:
        """The credentials; without them nobody gets in."""

        credentials: Credentials | None = None

    async def authenticate(self, *, session: Session) -> bool:
        """Judge a session and mark it. Never None: amqtt would not count that as a denial."""
        credentials: Credentials | None = self.config.credentials
        allowed = (
            credentials is not None
            and credentials.match(session.username, session.password)
            and (session.client_id or "").startswith(ID_PREFIX)
        )
        session.attributes[MEDIATOR] = allowed
        session.password = None  # amqtt would keep it as long as the session
        return allowed


class MediatorTopics(BaseTopicPlugin):
    """Every topic for a mediator, which has already judged its clients; none for anybody else."""

    @dataclass
    class Config:
        """Nothing to configure."""

    async def topic_filtering(
        self,
        *,
        session: Session | None = None,
        topic: str | None = None,
        action: Action | None = None,
    ) -> bool:
        """Judge PUBLISH, SUBSCRIBE and delivery alike."""
        return (
            session is not None
            and bool(topic)
            and action in (Action.PUBLISH, Action.SUBSCRIBE, Action.RECEIVE)
            and session.attributes.get(MEDIATOR) is True
            and (session.client_id or "").startswith(ID_PREFIX)
        )

"""The fixtures: one broker process a module, peers that are closed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from broker.peers import BrokerProcess, MakePeer, Peer, listen


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """One broker for the tests of a module; it is still well at the end."""
    made = BrokerProcess.start()
    yield made
    alive = made.process.poll() is None
    log = made.log()
    code = made.stop()
    assert alive, log
    assert code == 0, log
    assert "Traceback" not in log, log


@pytest.fixture
def peer() -> Iterator[MakePeer]:
    """Makes peers with a mediator's credentials, or with what is given; all are closed."""
    made: list[Peer] = []

    def make(
        broker: BrokerProcess | None,
        client_id: str = "",
        *,
        user: str | None = None,
        password: str | None = None,
        clean: bool = True,
        will: tuple[str, bytes] | None = None,
    ) -> Peer:
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id or f"sealmq/1/{os.urandom(4).hex()}",
            clean_session=clean,
            protocol=paho.MQTTv311,
            reconnect_on_failure=False,
        )
        if broker is not None:
            user, password = broker.credentials.user, broker.credentials.password
        if user is not None:
            client.username_pw_set(user, password)
        if will is not None:
            client.will_set(*will, qos=1)
        peer = Peer(client)
        listen(peer)
        made.append(peer)
        return peer

    yield make
    for one in made:
        one.close()

"""One visit: canaries in, every try, canaries out.

It is fast because nothing is waited for that need not come: each try ends with an honest message,
behind which nothing of the try can follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from sealmq.bridge import told
from sealmq.broker.target import Target
from sealmq.families import registry
from sealmq.kglink import KgClient
from sealmq.run import ready
from sealmq.run.logfile import stamp
from sealmq.run.ready import Ready
from sealmq.site.canary import READER, STRANGER, WRITER
from sealmq.site.config import Config, load
from sealmq.site.errors import ConfigError
from sealmq.site.layout import Layout
from sealmq.site.model import Border
from sealmq.site.values import ANYWHERE, address
from sealmq_spec.identity import Identity

from .at_broker import AtBroker
from .at_mediator import AtMediator
from .canary import Canary
from .errors import Broken, DoctorError
from .policy import alone, in_policy
from .result import Result, Try, attempt, untried

# Until the mediator has taken over sealmq.toml and the keys.
_TAKEN_OVER_S = 15.0


async def examine(layout: Layout) -> list[Result]:
    """Every try's result. DoctorError, ConfigError, KgError: it could not even begin."""
    try:
        config = load(layout.config)
    except ConfigError as error:
        # Its canaries have to be taken over.
        raise DoctorError(
            f"{error}; until that is mended the site goes by the policy that was taken over last, "
            "and nothing can be tried",
            error.hint,
        ) from None
    mediator, broker = _serving(layout, "mediator"), _serving(layout, "broker")
    said = ready.read_json(layout.ready("mediator")) or {}
    closed, away = said.get("closed"), said.get("away")
    if away:
        raise DoctorError(f"nobody can connect: {away}", f"see: sealmq status {layout.root}")
    if closed:
        raise DoctorError(
            f"the site is closed and delivers nothing: {closed}", "see: sealmq reopen --help"
        )
    with alone(layout):
        async with _canaries(layout, mediator) as canaries:
            external = broker.kind == "external"
            return await _tries(layout, config, canaries, _outside(layout, broker), external)


def _serving(layout: Layout, role: str) -> Ready:
    found = ready.read(layout, role)
    if found is None or not found.ready:
        raise DoctorError(f"the {role} of {layout.root} is not up", f"sealmq up {layout.root}")
    return found


@asynccontextmanager
async def _canaries(layout: Layout, mediator: Ready) -> AsyncIterator[list[Canary]]:
    host, port = address(mediator.address, "run/mediator/ready.json")
    host = ANYWHERE.get(host, host)
    async with await KgClient.connect(layout.kg_socket) as kg:
        try:
            with in_policy(layout):
                await kg.reload()
                made = []
                for name in (WRITER, READER, STRANGER):
                    enrolment, dump = await kg.lend(name)
                    identity = Identity.from_enrolment(enrolment)
                    if not identity.load(dump):
                        raise DoctorError("the key generator lent what is no identity")
                    made.append(Canary(identity, host, port, name))
                async with AsyncExitStack() as stack:
                    for canary in made:
                        stack.callback(canary.close)
                        await _enter(canary)
                    yield made
        finally:
            await kg.reload()


async def _enter(canary: Canary) -> None:
    """Connect; the mediator may not have heard of it yet."""
    end = asyncio.get_running_loop().time() + _TAKEN_OVER_S
    while True:
        try:
            await canary.connect()
            return
        except Broken as error:
            if asyncio.get_running_loop().time() > end:
                raise DoctorError(
                    f"{canary.name} cannot connect to {canary.host}:{canary.port}: {error}",
                    "sealmq status SITE; the audit log holds the reason",
                ) from None
        await asyncio.sleep(0.02)


def _target(layout: Layout, broker: Ready) -> Target:
    if broker.kind == "mosquitto":
        return Target.at_socket(layout.broker_socket)
    return Target(*address(broker.address, "run/broker/ready.json"))


def _outside(layout: Layout, broker: Ready) -> AtBroker:
    return AtBroker(_target(layout, broker), broker.tls, broker.queue)


async def _tries(
    layout: Layout, config: Config, canaries: list[Canary], outside: AtBroker, external: bool
) -> list[Result]:
    writer, reader, stranger = canaries
    judging = map(registry.manifest, config.policy.order)
    families = {of.name: of.load(of.doctor.part) for of in judging if of.doctor}
    inside = AtMediator(writer, reader, stranger, [family.as_sent for family in families.values()])
    await inside.subscribe()
    proof = reader.hello[-54:].decode()

    at_broker = {
        "broker: without credentials": outside.anonymous,
        "broker: with guessed credentials": outside.guesses,
        "broker: with a client's credentials": lambda: outside.client(proof),
    }
    if outside.tls:
        at_broker["broker: without TLS"] = outside.plain
    if external:
        at_broker["broker: its queue for slow readers"] = outside.queue
    at_mediator: dict[str, Try] = {
        "connect without a proof": inside.no_proof,
        "connect with a replayed proof": inside.replayed_connect,
        "publish to another label's topic": inside.foreign_publish,
        "publish downwards": inside.upward_publish,
        "publish what was published before": inside.replayed_publish,
        "publish on another topic than sealed for": inside.moved,
        "publish plaintext": inside.unsealed,
        "publish to reserved topics": inside.reserved,
        "subscribe to another label's topic": inside.foreign_subscribe,
        "read beside one's label": inside.foreign_read,
        "read above one's label": inside.lower_reader,
        "clear a retained message with an empty one": inside.empty_retained,
        "clients are sent to this mediator": lambda: inside.advertised(config.mediator),
    }
    if config.borders:
        mounts = [border.mount for border in config.borders.values()]
        at_mediator["publish in a border's place"] = lambda: inside.in_place_of_a_border(mounts)
    results = [_declassifies(border) for border in config.borders.values() if border.declassify]
    results += [_line_to(layout, peer.name) for peer in config.peers.values() if not peer.far]
    for name, family in families.items():
        try:
            at_mediator |= family.tries(inside)
        except Exception as error:
            results.append(untried(f"tries of {name}", error))
    results += [await attempt(name, work) for name, work in at_broker.items()]
    results.append(await attempt("an honest message arrives", inside.honest))
    if results[-1].ok:
        results += [await _fresh(inside, name, work) for name, work in at_mediator.items()]
    else:  # a refusal would mean nothing
        results += [Result(name, None, "an honest message does not arrive") for name in at_mediator]
    inside.close()
    return results


# Nothing that can be tried: whoever reads this has to know.
def _declassifies(border: Border) -> Result:
    return Result(
        f"border {border.name} declassifies",
        True,
        f"who has {border.label_out} reads what {border.label_in} is needed for otherwise: "
        + ", ".join(border.topics),
    )


# Nothing is open for it; but nothing is delivered over it either.
def _line_to(layout: Layout, peer: str) -> Result:
    found = told.line(layout, peer)
    line, since = str(found["line"]), found["since"]
    at = "" if since is None else f", since {stamp(since)[:19]}Z"
    return Result(f"the line to {peer}", True if ready.is_up(line) else None, f"{line}{at}")


async def _fresh(inside: AtMediator, name: str, work: Try) -> Result:
    async def both() -> str:
        await inside.drain()
        return await work()

    return await attempt(name, both)

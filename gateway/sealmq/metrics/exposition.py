"""A site's state as Prometheus reads it. No topic and no client's name is in a label.

Names and units follow prometheus.io/docs/practices/naming; the dashboard in
grafana.json beside this file uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sealmq import __version__

from .health import Health

_OF = ("role", "process")
# Gauges that a process measures: what they are called here, and what they say.
_GAUGES = {
    "journal_bytes": "Acknowledged messages that the broker may not have saved.",
    "journal_segments": "Files of the journal.",
    "handover_labels": "Labels of which an old epoch is still taken.",
    "handover_waiting": "Connections that wait for a new epoch.",
    "set_aside": "Messages that the broker did not take, set aside.",
    "stuck_sessions": "Old sessions that are not ended at the broker yet.",
    "loop_lag_seconds": "How late the event loop was last: what everything in it waits.",
    "log_ahead_seconds": "How far the newest audit record of earlier runs is ahead of the clock.",
}
_SUMS = {
    "publish_seconds": (
        "From a client's PUBLISH, QoS 1 or 2, to the answer of broker and journal.",
        "publish_count",
    )
}


class Once(Collector):
    """One moment's state."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterable[Metric]:
        """As prometheus_client asks."""
        yield from _of_site(self._health)
        yield from _of_events(self._health)
        yield from _of_gauges(self._health)


def text(health: Health) -> bytes:
    """The exposition format, version 0.0.4."""
    registry = CollectorRegistry()
    registry.register(Once(health))
    return generate_latest(registry)


def _gauge(
    name: str, what: str, rows: Iterable[tuple[Iterable[str], float]], labels: Iterable[str] = ()
) -> GaugeMetricFamily:
    found = GaugeMetricFamily(f"sealmq_{name}", what, labels=list(labels))
    for words, value in rows:
        found.add_metric(list(words), value)
    return found


def _of_site(health: Health) -> Iterator[Metric]:
    yield _gauge("healthy", "1 if /healthz has no problem.", [((), not health.problems)])
    yield _gauge("problems", "How many problems /healthz has.", [((), len(health.problems))])
    yield _gauge("build_info", "The version of SealMQ.", [((__version__,), 1)], ["version"])
    status = health.status
    if status is not None:
        rows = [((one.role,), float(one.ready)) for one in status.processes]
        yield _gauge("ready", "1 if the role serves, found out by a connection.", rows, ["role"])
        enforced = [((), float(status.enforce))] if status.enforce is not None else []
        yield _gauge("policy_enforced", "0 if every denial is let through.", enforced)


def _of_events(health: Health) -> Iterator[Metric]:
    events = CounterMetricFamily(
        "sealmq_events",
        "What the audit log has, and counts: by event, and by rule where one decided.",
        labels=[*_OF, "event", "rule"],
    )
    for one in health.told:
        for (event, rule), count in sorted(one.events.items()):
            events.add_metric([one.role, one.name, event, rule], count)
    yield events


def _of_gauges(health: Health) -> Iterator[Metric]:
    mediators = [one for one in health.told if one.role == "mediator"]
    yield _gauge(
        "clients_connected",
        "Clients with a connection.",
        [((one.role, one.name), one.clients) for one in mediators],
        _OF,
    )
    yield _gauge(
        "connections",
        "Connections of clients.",
        [((one.role, one.name), one.connections) for one in mediators],
        _OF,
    )
    yield _gauge(
        "audit_error",
        "1 while the audit log cannot be written.",
        [((one.role, one.name), float(one.error is not None)) for one in health.told],
        _OF,
    )
    # Under its usual name. With it a counter that begins anew is told from one that lost something.
    started = GaugeMetricFamily(
        "process_start_time_seconds", "Start time of the process, Unix seconds.", labels=_OF
    )
    for one in health.told:
        started.add_metric([one.role, one.name], health.boot_s + one.began_s)
    yield started
    for name, what in _GAUGES.items():
        rows = [
            ((one.role, one.name), one.gauges[name]) for one in health.told if name in one.gauges
        ]
        yield _gauge(name, what, rows, _OF)
    for name, (what, count) in _SUMS.items():
        total = CounterMetricFamily(f"sealmq_{name}", what, labels=_OF)
        many = CounterMetricFamily(f"sealmq_{count}", f"How many: {what}", labels=_OF)
        for one in health.told:
            if name in one.gauges and count in one.gauges:
                total.add_metric([one.role, one.name], one.gauges[name])
                many.add_metric([one.role, one.name], one.gauges[count])
        yield total
        yield many

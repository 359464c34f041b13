"""Tables of kg.db. A column named `secret` holds what Vault sealed; everything else is public.

Rows of labels and clients are never deleted: their numbers are in envelopes and must not come back
with another meaning.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

VERSION = 6

metadata = MetaData()

# site (4 bytes), version, check (sealed): the key is the right one when `check` opens. policy: the
# text of the sealmq.toml in force. out: clients whom it does not disable and who are out, as JSON.
# leavers.FAMILY: names of clients that are gone, which the family could not be told of, as JSON.
meta = Table(
    "meta",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

# kseq, inst: they only rise. label, client, grant: numbers up to these are not given to new ones.
counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Integer, nullable=False),
)

# made: how many epochs it got on that day (days since 1970), for the limit of a day.
labels = Table(
    "labels",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False, unique=True),
    Column("suite", Integer, nullable=False),
    Column("removed", Boolean, nullable=False),
    Column("day", Integer, nullable=False, server_default="0"),
    Column("made", Integer, nullable=False, server_default="0"),
)

# secret: R ‖ R̄. handover_end: Unix time from which live messages of the epoch before are refused.
# kseq: when the epoch was made; all its records and its manifest carry it, so that a client that
# sees several of them never takes one for older than another.
epochs = Table(
    "epochs",
    metadata,
    Column("label", Integer, primary_key=True, autoincrement=False),
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("handover_end", Integer, nullable=False),
    Column("kseq", Integer, nullable=False),
    Column("secret", LargeBinary, nullable=False),
)

# secret: ps. gen: the highest generation ever issued. rotation: how often the operator had its
# secret replaced. ended: connections of generations up to this one are over, since the client left.
# since: when the one that bears the name now was added (Unix time; 0: before version 3).
clients = Table(
    "clients",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False, unique=True),
    Column("label", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("suite", Integer, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("removed", Boolean, nullable=False),
    Column("gen", Integer, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("rotation", Integer, nullable=False, server_default="0"),
    Column("ended", Integer, nullable=False, server_default="0"),
    Column("since", Integer, nullable=False, server_default="0"),
)

# secret: k_c^M. A few rows a client: the confirmed one and those made since (SPEC.md 7.2).
# epoch: of the client's label; a generation goes with exactly this one.
links = Table(
    "links",
    metadata,
    Column("client", Integer, primary_key=True, autoincrement=False),
    Column("gen", Integer, primary_key=True, autoincrement=False),
    Column("mediator", Integer, nullable=False),
    Column("pending", Boolean, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("epoch", Integer, nullable=False, server_default="0"),
)

# Public: derivation records, and back-links (n = top). SPEC.md 8.
records = Table(
    "records",
    metadata,
    Column("top", Integer, primary_key=True, autoincrement=False),
    Column("top_epoch", Integer, primary_key=True, autoincrement=False),
    Column("n", Integer, primary_key=True, autoincrement=False),
    Column("n_epoch", Integer, primary_key=True, autoincrement=False),
    Column("packet", LargeBinary, nullable=False),
)

manifests = Table(
    "manifests",
    metadata,
    Column("label", Integer, primary_key=True, autoincrement=False),
    Column("epoch", Integer, nullable=False),
    Column("packet", LargeBinary, nullable=False),
)

# secret: G of the newest epoch. A grant that no family wants any more is deleted; its number stays
# given (counters).
grants = Table(
    "grants",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("family", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    UniqueConstraint("family", "name"),
)

# Grants that are over, of those that no client held: what lies at a broker under one is still
# opened by mediators, and by nobody else. Of all others an older G is of no use to anybody.
older_grants = Table(
    "older_grants",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("epoch", Integer, primary_key=True, autoincrement=False),
    Column("family", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("secret", LargeBinary, nullable=False),
)

# What operators give a policy family to keep (kept.py). secret: all of it.
kept = Table(
    "kept",
    metadata,
    Column("family", Text, primary_key=True),
    Column("secret", LargeBinary, nullable=False),
)

# Who may be told a grant's G of the newest epoch.
holders = Table(
    "holders",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("client", Integer, primary_key=True, autoincrement=False),
)

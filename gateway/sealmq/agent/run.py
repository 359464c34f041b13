"""All of an agent: its users' accounts, its doors, its clients, until a signal."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import signal
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path

from sealmq import garbage, logs, loops
from sealmq.formats import NewerFormat
from sealmq.loops import first_error
from sealmq.run import notify

from .account import Account
from .config import BadConfig, Config
from .doors import opened
from .local import Local, Pipe
from .spool import Spool
from .wallet import Wallet
from .wire import Refusal

log = logging.getLogger("sealmq.agent")

# Besides those that have not said who they are (doors.py).
CLIENTS = 256
_ENDING = Refusal("ending", "", "the agent ends")
# Compared with where there is no such user, or one without a password.
_NOBODY = os.urandom(32)


class Agent:
    """accounts: by user name."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._accounts: dict[str, Account] = {}
        self._clients: set[Local] = set()

    async def run(self, serves: Callable[[], None]) -> None:
        """Until cancelled. serves: told once all doors are open. BadConfig, ClientError, SealError,
        OSError."""
        self._config.spool.mkdir(0o700, parents=True, exist_ok=True)
        spool = _spool(_private(self._config.spool) / "unsent.db", self._config.users)
        wallets = []
        try:
            for user in self._config.users.values():
                wallet = await Wallet.of(user)
                wallets.append(wallet)
                account = Account(user, wallet, spool, self._teller(user.name))
                await account.sessions.load()
                self._accounts[user.name] = account
            async with asyncio.TaskGroup() as group:
                for account in self._accounts.values():
                    group.create_task(account.run(), name=f"agent: {account.user.name}")
                async with opened(self._config, self._serve):
                    serves()
                    try:
                        await asyncio.Event().wait()
                    finally:
                        await self._end()
        finally:
            for wallet in wallets:
                wallet.shut()
            spool.close()

    async def _end(self) -> None:
        for local in list(self._clients):
            local.end(_ENDING)
        for _ in range(50):
            if not self._clients:
                break
            await asyncio.sleep(0.05)

    async def _serve(self, pipe: Pipe) -> None:
        if sum(local.account is not None for local in self._clients) >= CLIENTS:
            log.warning("%s", f"{CLIENTS} clients are here, one more was cut off")
            await pipe.close()
            return
        local = Local(pipe, self.account_of, self._joined)
        self._clients.add(local)
        try:
            await local.run()
        finally:
            self._clients.discard(local)

    def account_of(self, user: str | None, password: bytes | None) -> Account | None:
        """Whose name and password these are. Without a name it is the only user's."""
        names = list(self._accounts)
        name = names[0] if user is None and len(names) == 1 else user or ""
        account = self._accounts.get(name)
        right = _NOBODY if account is None else account.user.password
        if account is not None and right is None:
            # `checked` has let this pass for a socket of the owner's own, or where it was said.
            return account
        same = hmac.compare_digest(_digest(password or b""), _digest(right or _NOBODY))
        return account if same and account is not None else None

    async def _joined(self, new: Local) -> None:
        had = [
            local
            for local in self._clients
            if local is not new
            and local.account is new.account
            and local.client_id == new.client_id
        ]
        for local in had:
            why = "another client has come with this client identifier"
            local.end(Refusal("taken over", "", why))
        for local in had:
            await local.left()

    def _teller(self, user: str) -> Callable[[str, Refusal], None]:
        def tell(topic: str, refusal: Refusal) -> None:
            if not topic:
                log.warning("%s", f"{user}: {refusal}")
            for local in list(self._clients):
                if local.account is not None and local.account.user.name == user:
                    local.refused(topic, refusal)

        return tell


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _private(folder: Path) -> Path:
    """A folder that is ours, and closed to others."""
    found = folder.stat()
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o077:
        raise BadConfig(
            f"{folder} is open to others, or another user's", hint=f"chmod 700 {folder}"
        )
    return folder


def _spool(path: Path, users: Collection[str]) -> Spool:
    try:
        return Spool(path, users)
    except sqlite3.Error as error:
        hint = "free the disk, or move the file away; no message in it was acknowledged"
        raise BadConfig(f"what waits for the site, {path}: {error}", hint=hint) from None
    except NewerFormat as error:
        raise BadConfig(f"what waits for the site, {error}", hint=error.hint) from None


def serve(config: Config, say: Callable[[str], None]) -> None:
    """Run it until SIGTERM or SIGINT."""
    logs.begin("agent: ")
    doors = ", ".join(map(str, config.doors))

    def serves() -> None:
        say(f"the agent listens on {doors}; Ctrl-C stops it.")
        notify.notify("READY=1")

    async def work() -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(Agent(config).run(serves), name="agent")
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            pass
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        finally:
            notify.notify("STOPPING=1")

    garbage.started()
    loops.run(work())

"""The client for scripts without asyncio: the same calls, each waits for its result.

A loop in a thread of its own serves the connection, so that it lives while the script computes.
Calls may come from several threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, TypeVar

from sealmq_spec.errors import Misuse

from .client import Client, Payload
from .errors import Closed
from .values import Message

T = TypeVar("T")


class BlockingClient:
    """`client`, not yet connected, for calls that block. `with` connects and disconnects.

    Arguments, results and errors are those of `Client`, whose on_notice, on_state and on_news are
    called in the loop's thread, where no call may block: Misuse.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._thread: threading.Thread | None = None

    def connect(self, *, within: float | None = None) -> None:
        """As `Client.connect`."""
        if self._loop is not None:
            raise Closed("the client is connected already; disconnect first")
        started: Future[asyncio.AbstractEventLoop] = Future()
        # A script that ends without disconnect is not kept from ending.
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="sealmq", daemon=True
        )
        self._thread.start()
        self._loop = started.result()
        try:
            self.run(self.client.connect(within=within))
        except BaseException:
            self._end()
            raise

    def _run(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve(started))
        except Exception as error:  # no file descriptors are left, say
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        self._ended = asyncio.Event()
        started.set_result(asyncio.get_running_loop())
        await self._ended.wait()

    def disconnect(self) -> None:
        """As `Client.disconnect`. Nothing happens when it was done before."""
        if self._loop is not None:
            self._may_block()
            try:
                self.run(self.client.disconnect())
            finally:
                self._end()

    def __enter__(self) -> BlockingClient:
        self.connect()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.disconnect()

    def publish(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        life: int = 0,
        tlv: Mapping[int, bytes] | None = None,
        put: Mapping[str, Sequence[str]] | None = None,
        confirm: float | None = None,
        within: float | None = None,
    ) -> None:
        """As `Client.publish`."""
        call = self.client.publish(
            topic,
            payload,
            qos=qos,
            retain=retain,
            life=life,
            tlv=tlv,
            put=put,
            confirm=confirm,
            within=within,
        )
        self.run(call)

    def clear(
        self,
        topic: str,
        *,
        qos: int = 0,
        life: int = 0,
        tlv: Mapping[int, bytes] | None = None,
        confirm: float | None = None,
        within: float | None = None,
    ) -> None:
        """As `Client.clear`."""
        made = self.client.clear(topic, qos=qos, life=life, tlv=tlv, confirm=confirm, within=within)
        self.run(made)

    def subscribe(
        self,
        *filters: str,
        qos: int = 0,
        within: float | None = None,
        **said: str | None,
    ) -> list[int]:
        """As `Client.subscribe`."""
        return self.run(self.client.subscribe(*filters, qos=qos, within=within, **said))

    def unsubscribe(self, *filters: str, within: float | None = None, **said: str | None) -> None:
        """As `Client.unsubscribe`."""
        self.run(self.client.unsubscribe(*filters, within=within, **said))

    def receive(self, *, within: float | None = None) -> Message:
        """As `Client.receive`."""
        return self.run(self.client.receive(within=within))

    def messages(self, *, within: float | None = None) -> Iterator[Message]:
        """As `Client.messages`; TimedOut where so many seconds pass without one."""
        while True:
            try:
                message = self.receive(within=within)
            except Closed:
                return
            yield message

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a call of `client`'s, or of what a policy family offers for it.

        Example: `c.run(Purposes(c.client).reserve("hall/temperature", ["service"]))`
        """
        if self._loop is None:
            work.close()
            raise Closed("the client is not connected")
        try:
            self._may_block()
        except Misuse:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Closed("the client is disconnected") from None
        except BaseException:
            # Ctrl-C ends the call, not only the wait for it.
            future.cancel()
            raise

    # --- inside ----------------------------------------------------------------------------------

    def _may_block(self) -> None:
        """Misuse in the thread that serves the connection."""
        if threading.current_thread() is self._thread:
            raise Misuse("a call that blocks, in the thread that serves the connection: hand it on")

    def _end(self) -> None:
        """The loop ends, and with it every call that other threads still wait in."""
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

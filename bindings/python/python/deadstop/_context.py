"""The scopes that a piece of work is in: they follow tasks, threads and thread pools."""

from __future__ import annotations

import contextvars
import functools
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from ._session import Scope

#: The scopes that this thread or task is in, of any session, the innermost last.
entered: contextvars.ContextVar[tuple[Scope, ...]] = contextvars.ContextVar(
    "deadstop_scopes", default=()
)
_installed = False
_installing = threading.Lock()


def inherit() -> None:
    """Makes threads and thread pools inherit scopes, which Python does only for tasks. It is done
    when the first scope is entered."""
    global _installed
    if _installed:
        return
    with _installing:
        if not _installed:
            threading.Thread.start = _starting(threading.Thread.start)  # pyright: ignore
            ThreadPoolExecutor.submit = _submitting(ThreadPoolExecutor.submit)
            _installed = True


def inside(scopes: tuple[Scope, ...], work: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs in these scopes, on whichever thread it is called."""

    @functools.wraps(work)
    def bound(*args: Any, **kwargs: Any) -> Any:
        token = entered.set(scopes)
        try:
            return work(*args, **kwargs)
        finally:
            entered.reset(token)

    return bound


def _starting(original: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        scopes = entered.get()
        if not scopes:
            return original(self)
        run = self.run

        def run_inside() -> None:
            # The thread must not keep itself alive.
            self.__dict__.pop("run", None)
            entered.set(scopes)
            run()

        self.run = run_inside
        try:
            return original(self)
        except BaseException:
            self.__dict__.pop("run", None)
            raise

    return start


def _submitting(original: Callable[..., Future[Any]]) -> Callable[..., Future[Any]]:
    @functools.wraps(original)
    def submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        # Also outside of every scope: the pool's thread may have been started inside one.
        return original(self, _Inside(entered.get(), fn), *args, **kwargs)

    return submit


class _Inside:
    """A function that runs in the scopes of the code that submitted it."""

    __slots__ = ("_scopes", "_work")

    def __init__(self, scopes: tuple[Scope, ...], work: Callable[..., Any]) -> None:
        self._scopes, self._work = scopes, work

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        token = entered.set(self._scopes)
        try:
            return self._work(*args, **kwargs)
        finally:
            entered.reset(token)

"""Callbacks that are called when a guard trips, or steers the model."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from typing import Any, Awaitable, Callable

from ._errors import KillContext, Trip

OnTripped = Callable[[KillContext], object]
OnSteer = Callable[[KillContext], object]

#: The callbacks that run in this piece of work.
_running: contextvars.ContextVar[tuple[OnTripped, ...]] = contextvars.ContextVar(
    "deadstop_callbacks", default=()
)
#: Callbacks that run as tasks: a loop holds its tasks weakly.
_tasks: set[asyncio.Task[Any]] = set()


def adapt(callback: OnTripped) -> Callable[[Trip], None]:
    """What the engine calls. A callback is not called for a trip that it causes itself."""

    def told(trip: Trip) -> None:
        running = _running.get()
        if callback in running:
            return
        token = _running.set((*running, callback))
        try:
            result = callback(trip.context)
            if inspect.isawaitable(result):
                _run(result)
        finally:
            _running.reset(token)

    return told


def _run(result: Awaitable[Any]) -> None:
    """Runs an async callback: as a task of this thread's loop, or on a thread with a loop of its own."""
    try:
        task = asyncio.get_running_loop().create_task(_wait(result))
    except RuntimeError:
        context = contextvars.copy_context()
        work = lambda: context.run(asyncio.run, _wait(result))  # noqa: E731
        threading.Thread(target=work, name="deadstop-callback").start()
    else:
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)


async def _wait(result: Awaitable[Any]) -> Any:
    return await result

"""Work that a stop ends at once, blocking or not."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from typing import Any, Awaitable, Callable, TypeVar, cast

from ._native import Stop

T = TypeVar("T")


class Stopped(Exception):
    """The work was left alone: a stop has come."""


class _Task:
    """Work for a helper thread."""

    __slots__ = ("work", "context", "value", "error", "over", "left")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.context = contextvars.copy_context()
        self.value: Any = None
        self.error: BaseException | None = None
        self.over = threading.Semaphore(0)
        self.left = False


class _Helpers:
    """Threads that wait for answers, so that the caller can leave when a stop comes.

    They are daemons: a thread that waits for an answer does not keep the interpreter alive.
    """

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[queue.SimpleQueue[_Task]] = queue.SimpleQueue()

    def start(self, task: _Task) -> None:
        try:
            inbox = self._idle.get_nowait()
        except queue.Empty:
            inbox = queue.SimpleQueue[_Task]()
            thread = threading.Thread(
                target=self._run, args=(inbox,), name="deadstop-call", daemon=True
            )
            thread.start()
        inbox.put(task)

    def _run(self, inbox: queue.SimpleQueue[_Task]) -> None:
        while True:
            task = inbox.get()
            try:
                task.value = task.context.run(task.work)
            except BaseException as error:  # handed to the caller
                task.error = error
            if task.left and task.value is not None:
                # The caller has left: close what the answer came through.
                try:
                    task.value.close()
                except Exception:
                    pass
            self._idle.put(inbox)
            task.over.release()
            del task


_helpers = _Helpers()


def forget_helpers() -> None:
    """After a fork there are no threads."""
    global _helpers
    _helpers = _Helpers()


def run(work: Callable[[], T], stop: Stop) -> T:
    """Does blocking work, and raises :class:`Stopped` as soon as a stop comes."""
    if stop.is_stopped:
        raise Stopped
    task = _Task(work)
    watch = stop.on_stop(task.over.release)
    try:
        _helpers.start(task)
        task.over.acquire()
        if task.error is None and task.value is None and stop.is_stopped:
            task.left = True
            raise Stopped
    finally:
        watch.cancel()
    if task.error is not None:
        raise task.error
    return cast(T, task.value)


async def arun(work: Awaitable[T], stop: Stop) -> T:
    """Awaits something, and raises :class:`Stopped` as soon as a stop comes, from any thread."""
    try:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
    except RuntimeError:
        # Another kind of loop: the stop is seen when the work is done.
        return await work
    waiting, cut = True, False

    def cancel() -> None:
        nonlocal cut
        # Only while the task waits here: what it does afterwards is not ours to cancel.
        if waiting and not cut and task is not None:
            cut = True
            task.cancel()

    def on_stop() -> None:
        try:
            loop.call_soon_threadsafe(cancel)
        except RuntimeError:
            pass  # the loop is closed, and nothing waits any more

    watch = stop.on_stop(on_stop)
    try:
        return await work
    except asyncio.CancelledError:
        uncancel = getattr(task, "uncancel", None)
        if cut and (uncancel is None or uncancel() == 0):
            raise Stopped from None
        raise
    finally:
        waiting = False
        watch.cancel()

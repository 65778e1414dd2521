"""What is raised, and what callbacks are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from . import _retries


@dataclass(frozen=True)
class KillContext:
    """Where a guard tripped, and what had been spent by then: what ``on_tripped`` is called with."""

    who: str
    """The scope whose guard tripped, as a path: ``agent/session/crew/researcher``."""
    path: list[str]
    """The same path as its names, the agent first."""
    kind: str
    """Its kind: ``project``, ``agent``, ``session`` or ``nested``."""
    depth: int
    """How many scopes are above it inside the session: 0 for the session itself."""
    reason: str
    """Why, as a stable code: ``input_exceeded``, ``repetition``, ``session_killed``. After a kill
    later calls have the code of what killed."""
    input_tokens_spent: int
    """Input tokens of that scope, with those of the answer that tripped."""
    output_tokens_spent: int
    """Output tokens of that scope, with those of the answer that tripped."""
    elapsed_ms: int
    """Milliseconds since that scope was opened."""
    accumulated_input_tokens: int
    """Input tokens of the whole session."""
    accumulated_output_tokens: int
    """Output tokens of the whole session."""
    guard: str = ""
    """Which guard."""
    verdict: str = ""
    """What is done about it: ``warn``, ``steer``, ``block`` or ``kill``."""
    message: str = ""
    """One sentence for people."""
    advice: str | None = None
    """What the model is told, where a guard steers it or says more than no."""


@dataclass(frozen=True)
class Trip:
    """A guard firing: its context, and what it measured."""

    guard: str
    """Which guard."""
    verdict: str
    """What is done about it: ``warn``, ``steer``, ``block`` or ``kill``."""
    code: str
    """The engine's code. It is ``reason``, except for calls after a kill (``session_killed_budget``)."""
    explain: str
    """One sentence for people."""
    measured: Any
    limit: Any
    incident: str | None
    """The incident at the server, if it became one."""
    advice: str | None
    """What the model is told, or should be told."""
    context: KillContext

    def __init__(self, why: Mapping[str, Any]) -> None:
        fields = dict(why)
        told = {"guard": fields["guard"], "verdict": fields["verdict"], "message": fields["explain"]}
        told["advice"] = fields.setdefault("advice", None)
        fields["context"] = KillContext(**fields["context"], **told)
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def reason(self) -> str:
        """The stable code."""
        return self.context.reason


class DeadstopError(Exception):
    """Something that is used wrongly: a policy, a name, a second wrap of one client."""


class _Refusal:
    """What a kill and a block have in common."""

    trip: Trip

    @property
    def context(self) -> KillContext:
        """Who, what was spent, for how long, why, and how deep."""
        return self.trip.context

    @property
    def reason(self) -> str:
        """The stable code: ``max_steps``, ``repetition``, ``session_killed``."""
        return self.trip.context.reason

    @property
    def guard(self) -> str:
        """Which guard."""
        return self.trip.guard


class DeadstopKilled(_Refusal, BaseException):
    """A scope is over: no call in it or below it may run.

    Not an ``Exception``, so that ``except Exception`` and libraries that retry let it pass. Let it
    propagate; catch it at the top, if at all.
    """

    def __init__(self, message: str, why: Mapping[str, Any]) -> None:
        _retries.respect(DeadstopKilled)
        super().__init__(message)
        self.trip = Trip(why)
        self._why = dict(why)

    def __reduce__(self) -> tuple[Any, ...]:
        return (DeadstopKilled, (self.args[0], self._why))


class DeadstopBlocked(_Refusal, DeadstopError):
    """This call may not run; others may. An agent may learn from it."""

    def __init__(self, message: str, why: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.trip = Trip(why)
        self._why = dict(why)

    def __reduce__(self) -> tuple[Any, ...]:
        return (DeadstopBlocked, (self.args[0], self._why))

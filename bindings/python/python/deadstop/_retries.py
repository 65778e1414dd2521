"""Libraries that retry every exception, also those that are no ``Exception``.

tenacity catches ``BaseException`` and lets a predicate decide. Positive predicates (the default,
``retry_if_exception_type``) let a kill pass; negative ones and a predicate that is always true would
retry it. So tenacity is taught, when the first kill is raised, that a kill is the end.
"""

from __future__ import annotations

import functools
import sys
from typing import Any


def respect(kill: type[BaseException]) -> None:
    """Makes the libraries that are loaded let a kill pass."""
    state = getattr(sys.modules.get("tenacity"), "RetryCallState", None)
    record = getattr(state, "set_exception", None)
    if state is None or record is None or getattr(record, "__deadstop__", False):
        return

    @functools.wraps(record)
    def set_exception(self: Any, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(exc_info[1], kill):
            raise exc_info[1]
        return record(self, exc_info, *args, **kwargs)

    set_exception.__deadstop__ = True  # type: ignore[attr-defined]
    state.set_exception = set_exception

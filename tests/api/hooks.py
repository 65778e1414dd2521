"""What schemathesis is told about this API beyond its document.

Made-up names find nothing but 404, so half of the valid requests are about things that are there
(DEADSTOP_NAMES). Targets of alerts are made but never used: nothing is to leave this machine.
"""

import json
import os
import zlib

import schemathesis
from schemathesis import GenerationMode

NAMES = json.loads(os.environ.get("DEADSTOP_NAMES", "{}"))


@schemathesis.hook
def before_call(context, case, kwargs):
    body = case.body if isinstance(case.body, dict) else {}
    if case.path.startswith("/api/alerts/targets") and body.get("active") is True:
        body["active"] = False
    positive = case.meta is None or case.meta.generation.mode == GenerationMode.POSITIVE
    for name, value in dict(case.path_parameters or {}).items():
        there = NAMES.get(f"{case.path} {name}") or NAMES.get(name)
        if positive and there and not case.path.startswith(("/api/keys/", "/api/alerts/")):
            if zlib.crc32(repr(value).encode()) % 2:
                case.path_parameters[name] = there
    # A call is told of more than once under the same few ids, so that they meet.
    if positive and "/sessions/{agent}/{session}/" in case.path and "id" in body:
        body["id"] = f"call-{zlib.crc32(repr(body['id']).encode()) % 8}"
    # A generated body would never be a valid policy, so half of the cases send a real one.
    if positive and case.method == "PUT" and case.path.startswith("/api/policies/"):
        if case.headers is not None and zlib.crc32(repr(case.body).encode()) % 2:
            whole = case.path == "/api/policies/default"
            case.body = NAMES["policy"] if whole else {"policy": NAMES["policy"], "kill_switch": None}
            case.headers["if-match"] = "*"


@schemathesis.deserializer("application/x-ndjson")
def lines(context, response):
    """A line after the other, each of them JSON: the document describes one."""
    found = [json.loads(line) for line in response.content.splitlines() if line.strip()]
    return found[-1] if found else None

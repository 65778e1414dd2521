"""OpenHands' stuck detector, as its package has it, on recorded runs: JSON lines on stdin, and for each line the
numbers of the messages at which it first told the model of a loop, and at which it ended the run.

A failed tool result is an `AgentErrorEvent`, which the detector judges most strictly. What the model says beside a
call is its thought, which the detector compares as well.
"""

import json
import logging
import os
import sys

os.environ["OPENHANDS_SUPPRESS_BANNER"] = "1"
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
# This file is named after what it tries, and must not be found in its place.
sys.path.pop(0)

from openhands.sdk.conversation.stuck_detector import StuckDetector  # noqa: E402
from openhands.sdk.event import ActionEvent, AgentErrorEvent, MessageEvent, ObservationEvent  # noqa: E402
from openhands.sdk.llm.message import Message, MessageToolCall, TextContent  # noqa: E402
from openhands.sdk.mcp.definition import MCPToolAction, MCPToolObservation  # noqa: E402

logging.disable(logging.CRITICAL)


class State:
    """What the detector asks of a conversation: its last events."""

    def __init__(self):
        self.events = []

    def active_branch(self, limit):
        return self.events[-limit:]


def said(message):
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content or "")


def events(message, calls):
    """The events of OpenHands that a message stands for."""
    text = [TextContent(text=said(message))]
    if message["role"] == "tool":
        name = calls.get(message.get("tool_call_id"), "tool")
        about = {"tool_name": name, "tool_call_id": message.get("tool_call_id") or "-"}
        if message.get("is_error"):
            yield AgentErrorEvent(error=said(message), **about)
        else:
            yield ObservationEvent(action_id="-", observation=MCPToolObservation(content=text, tool_name=name), **about)
    elif message.get("tool_calls"):
        for call in message["tool_calls"]:
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            calls[call.get("id")] = name
            try:
                data = json.loads(arguments)
            except ValueError:
                data = arguments
            asked = MessageToolCall(id=call.get("id") or "-", name=name, arguments=arguments, origin="completion")
            action = MCPToolAction(data=data if isinstance(data, dict) else {"": data})
            yield ActionEvent(thought=text, action=action, tool_name=name, tool_call_id=asked.id, tool_call=asked, llm_response_id="-")
    elif message["role"] in ("user", "assistant"):
        source = "user" if message["role"] == "user" else "agent"
        yield MessageEvent(source=source, llm_message=Message(role=message["role"], content=text))


def judged(messages):
    state, calls, noticed = State(), {}, None
    detector = StuckDetector(state)
    for number, message in enumerate(messages, 1):
        state.events.extend(events(message, calls))
        following = messages[number] if number < len(messages) else None
        # It looks before each turn of the model, when all results are there.
        if following and following["role"] == "tool":
            continue
        if detector.get_action_error_nudge():
            noticed = noticed or number
        if detector.is_stuck():
            return {"noticed": noticed or number, "ended": number}
    return {"noticed": noticed, "ended": None}


for line in sys.stdin:
    print(json.dumps(judged(json.loads(line)["messages"])), flush=True)

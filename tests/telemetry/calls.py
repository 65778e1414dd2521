"""Calls through the gateway of a real server, to the stand-in provider."""

import json

import standin

PROVIDER = '[providers.local]\nbase_url = "{url}"\n'


def provider():
    """The stand-in, and the configuration that names it."""
    upstream = standin.start()
    return upstream, PROVIDER.format(url=upstream.url)


def chat(server, model, agent, session, text="hello", stream=False, headers=None):
    """A model call; gives its status and body."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "stream": stream}
    headers = {"authorization": "Bearer sk-x", "x-deadstop-agent": agent, "x-deadstop-session": session,
               **(headers or {})}
    status, _, answer = server.ask("POST", "/local/v1/chat/completions", body, headers)
    return status, answer


def until_stopped(server, agent, session, most=40):
    """The same tool call again and again, until a guard refuses; gives the incident."""
    messages = [{"role": "user", "content": "go"}]
    for number in range(most):
        body = {"model": "gpt-4o-loop", "messages": messages}
        status, _, answer = server.ask("POST", "/local/v1/chat/completions", body, {
            "authorization": "Bearer sk-x", "x-deadstop-agent": agent, "x-deadstop-session": session})
        if status != 200:
            return status, number
        message = json.loads(answer)["choices"][0]["message"]
        messages.append(message)
        for call in message.get("tool_calls") or []:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "the same"})
    return None, most

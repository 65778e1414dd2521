"""The ways on which a secret gets into the program. Each takes a few secrets and sends them on its
way; the words `canary N` next to them stay, and show afterwards that the way leads somewhere.
"""

import json
import urllib.parse

import kinds
from provider import Plan

EXCERPT = 8192


class Ways:
    def __init__(self, server, provider, dice):
        self.server, self.provider, self.dice = server, provider, dice
        self.turn, self.refused = 0, 0
        # Words that are kept with all calls, and those that are kept with incidents.
        self.canaries, self.evident = [], []
        # What the API said on the way; a new key is shown once, and is meant to be.
        self.answers = []

    def all(self):
        """Every way, with how many secrets it takes at a time."""
        return [
            (self.prompt, 6), (self.prompt_of_anthropic, 6), (self.prompt_of_gemini, 4), (self.answer, 6),
            (self.streamed, 6), (self.streamed_by_anthropic, 6), (self.tool_call, 4), (self.streamed_tool_call, 4),
            (self.tool_result, 4), (self.broken_off, 1), (self.upstream_error, 6), (self.broken_body, 4), (self.headers, 3),
            (self.names, 3), (self.metadata, 1), (self.at_the_end, 1), (self.preflight, 6), (self.proposal, 6),
            (self.delete_loop, 1), (self.chant, 1), (self.orders, 4), (self.switch, 2), (self.note, 2),
            (self.policy, 1), (self.key, 1), (self.bad_request, 4), (self.receiver, 1), (self.path, 2),
        ]

    # What all of them need.

    def coin(self):
        return self.dice.random() < 0.5

    def next(self):
        self.turn += 1
        return self.turn

    def text(self, secrets):
        """Some words with the secrets among them, each on a line of its own."""
        canary = f"canary {self.turn} sings"
        self.canaries.append(canary.encode())
        return "\n".join(["Have a look at this.", *(secret.text for secret in secrets), canary])

    def field(self, secret):
        """A name of a field. The answer tells the sender which one was wrong, and is written before the
        project is known: there only the built-in kinds are removed, not the project's own ones."""
        return "field" if secret.kind == "own" else secret.text

    def token(self):
        """One that is known by its shape."""
        kind = self.dice.choice(list(kinds.TOKENS))
        return kinds.TOKENS[kind](self.dice)

    def who(self, **more):
        return {"x-deadstop-agent": f"agent-{self.turn % 50}", "x-deadstop-session": f"session-{self.turn}",
                "authorization": "Bearer none"} | more

    def send(self, method, path, body=None, headers=None):
        status, headers, answer = self.server.ask(method, path, body, headers)
        if status in (402, 403):
            self.refused += 1
        if path.startswith("/api/") and (status >= 500 or status == 401 and path != "/api/login"):
            raise AssertionError(f"{method} {path}: {status} {answer[:500]!r}")
        # These two repeat the client's own id for a call.
        repeats = path.endswith(("/proposal", "/receipt"))
        if path.startswith("/api/") and path != "/api/keys" and not repeats:
            self.answers.append((f"answer to {method} {path.split('?')[0][:60]} {status}", answer))
        return status, answer

    def openai(self, messages, plan=None, headers=None, **more):
        model = f"model-{self.turn}"
        if plan:
            self.provider.plans[model] = plan
        body = {"model": model, "messages": messages, "stream": bool(plan and plan.stream)} | more
        return self.send("POST", "/openai/v1/chat/completions", body, headers or self.who())

    def anthropic(self, text, plan=None):
        model = f"model-{self.turn}"
        if plan:
            self.provider.plans[model] = plan
        body = {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": text}],
                "system": "Be kind.", "stream": bool(plan and plan.stream)}
        return self.send("POST", "/anthropic/v1/messages", body, self.who())

    def says(self, text="Go on."):
        return [{"role": "user", "content": f"{text} {self.turn}"}]

    def govern(self, what, body):
        return self.send("POST", f"/api/sessions/agent-{self.turn % 50}/session-{self.turn}/{what}", body)

    # Through the gateway.

    def prompt(self, secrets):
        self.openai(self.says(self.text(secrets)))

    def prompt_of_anthropic(self, secrets):
        self.anthropic(self.text(secrets))

    def prompt_of_gemini(self, secrets):
        key = self.token()
        body = {"contents": [{"role": "user", "parts": [{"text": self.text(secrets)}]}]}
        query = urllib.parse.urlencode({"key": key.text})
        self.send("POST", f"/gemini/v1beta/models/gemini-{self.turn}:generateContent?{query}", body, self.who())
        return [key]

    def answer(self, secrets):
        self.openai(self.says(), Plan(self.text(secrets)))

    def streamed(self, secrets):
        self.openai(self.says(), Plan(self.text(secrets), stream=True, piece=self.dice.randrange(1, 9)))

    def streamed_by_anthropic(self, secrets):
        self.anthropic(f"Go on. {self.turn}", Plan(self.text(secrets), stream=True, piece=self.dice.randrange(2, 20)))

    def tool_call(self, secrets):
        plan = Plan(tool=("write_file", {"path": "x", "content": self.text(secrets)}))
        if self.coin():
            self.anthropic(f"Go on. {self.turn}", plan)
        else:
            self.openai(self.says(), plan)

    def streamed_tool_call(self, secrets):
        plan = Plan(tool=("write_file", {"path": "x", "content": self.text(secrets)}), stream=True, piece=7)
        if self.coin():
            self.anthropic(f"Go on. {self.turn}", plan)
        else:
            self.openai(self.says(), plan)

    def tool_result(self, secrets):
        self.openai(self.says(), Plan(tool=("read_file", {"path": f"f{self.turn}"})))
        call = {"id": "call-1", "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
        self.openai([*self.says(), {"role": "assistant", "content": None, "tool_calls": [call]},
                     {"role": "tool", "tool_call_id": "call-1", "content": self.text(secrets)}], Plan("fine"))

    def broken_off(self, secrets):
        """The answer ends in the middle of a secret, and the rest never comes."""
        text = self.text(secrets[:0]) + "\n"
        self.canaries.pop()
        inside = self.dice.randrange(1, len(secrets[0].text) + 1)
        plan = Plan(text + secrets[0].text, stream=True, piece=20, breaks_at=len(text) + inside)
        if self.coin():
            self.openai(self.says(), plan)
            return
        self.govern("preflight", {"id": "a", "model": "m", "prompt": f"p {self.turn}"})
        self.govern("progress", {"id": "a", "text": plan.text[:plan.breaks_at]})
        self.govern("receipt", {"id": "a", "status": "cancelled"})

    def upstream_error(self, secrets):
        text = self.text(secrets)
        self.canaries.pop()  # What a provider says about an error is passed on and not kept.
        self.openai(self.says(), Plan(text, status=self.dice.choice([400, 401, 429, 500, 503])))

    def broken_body(self, secrets):
        """No JSON at all, and JSON of the wrong shape."""
        broken = b'{"model": "m", "messages": [' + self.text(secrets).encode()
        self.canaries.pop()
        self.send("POST", "/openai/v1/chat/completions", broken, self.who())
        wrong = {"model": {"a": secrets[0].text}, "messages": secrets[-1].text}
        self.send("POST", "/anthropic/v1/messages", wrong, self.who())

    def headers(self, secrets):
        """The client's own keys."""
        own = [self.token() for _ in range(4)]
        flat = [secret for secret in secrets if "\n" not in secret.text]
        more = {f"x-own-{at}": secret.text for at, secret in enumerate(flat)}
        headers = self.who(authorization=f"Bearer {own[0].text}", cookie=f"sid={own[1].text}", **more)
        headers |= {"x-api-key": own[2].text, "api-key": own[3].text}
        self.openai(self.says(), Plan("fine"), headers)
        return own

    def names(self, secrets):
        """Names of models and tools, which are otherwise kept as they are."""
        own = [self.token() for _ in range(4)]
        self.openai(self.says(), None, model=own[0].text)
        self.send("POST", f"/gemini/v1beta/models/{urllib.parse.quote(own[1].text)}:generateContent", {}, self.who())
        self.openai(self.says("Next."), Plan(tool=(own[2].text, {"a": self.text(secrets)})))
        model = {"id": "a", "model": own[3].text, "provider": own[0].text, "prompt": f"p {self.turn}"}
        self.govern("preflight", model)
        return own

    def metadata(self, secrets):
        """What serves as a session's name and was not meant to."""
        own = [self.token() for _ in range(4)]
        headers = {"x-deadstop-agent": "agent-m", "authorization": "Bearer none"}
        self.openai(self.says(), Plan("fine"), headers, prompt_cache_key=own[0].text)
        self.openai(self.says("Next."), Plan("fine"), headers, safety_identifier=own[1].text, user=own[1].text)
        body = {"model": "m", "max_tokens": 9, "messages": self.says(), "metadata": {"user_id": own[2].text}}
        self.send("POST", "/anthropic/v1/messages", body, headers)
        baggage = headers | {"baggage": f"session.id={own[3].text}"}
        self.openai(self.says("Last."), Plan("fine"), baggage)
        return own

    def at_the_end(self, secrets):
        """Cut by the end of what is kept, in the prompt and in the answer."""
        secret = secrets[0]
        inside = self.dice.randrange(1, len(secret.text) + 1)
        filler = f"\n{'ab cd ' * 2000}"[:EXCERPT - inside - 1] + "\n"
        text = filler + secret.text + "\n" + "and more " * 1500
        if self.coin():
            self.openai([{"role": "user", "content": text}], Plan("fine"))
        else:
            self.openai(self.says(), Plan(text, stream=self.coin(), piece=100))

    def path(self, secrets):
        """Where nothing is, and in the query of what is."""
        for secret in secrets:
            part = urllib.parse.quote(secret.text, safe="")
            self.send("GET", f"/openai/v1/files/{part}?api_key={part}", headers=self.who())
            self.send("POST", f"/unknown/{part}?token={part}", {}, self.who())
            self.send("GET", f"/api/calls?cursor={part}")
            self.send("GET", f"/api/incidents/{part}")

    # Through the API.

    def preflight(self, secrets):
        self.govern("preflight", {"id": "a", "model": "m", "prompt": self.text(secrets[:2])})
        self.govern("progress", {"id": "a", "output_tokens": 5, "text": self.text(secrets[2:4])})
        self.govern("receipt", {"id": "a", "status": "ok", "text": self.text(secrets[4:])})
        self.canaries.pop()  # What was told on the way is the answer already.

    def proposal(self, secrets):
        own = [self.token() for _ in range(3)]
        arguments = {"text": self.text(secrets[:3]), own[0].text: 1, "password": "x"}
        call = {"id": own[1].text, "tool": "write", "server": own[2].text, "arguments": arguments}
        self.govern("proposal", {"calls": [call]})
        self.govern("receipt", {"id": own[1].text, "status": "error", "text": self.text(secrets[3:])})
        return own

    def delete_loop(self, secrets):
        """A guard's sentence names what was deleted, and the evidence shows it."""
        for number in range(4):
            arguments = {"path": secrets[0].text, "note": self.text(secrets)}
            self.govern("proposal", {"calls": [{"id": f"d{number}", "tool": "delete_file", "arguments": arguments}]})
            self.evident.append(self.canaries.pop())
        self.evident.pop()  # It was dead by then.

    def chant(self, secrets):
        """A guard's sentence quotes what was said."""
        words = f"I try {secrets[0].text} again. " if self.coin() else f"{secrets[0].text} did not work. "
        self.openai(self.says(), Plan(words * (6000 // len(words) + 12), stream=True, piece=300))

    def orders(self, secrets):
        agent, session = f"agent-o{self.turn}", f"session-{self.turn}"
        self.send("POST", "/api/sessions", {"agent": agent, "session": session})
        # Longer than what a state keeps of a reason, so that it is cut.
        reasons = ["x " * self.dice.randrange(0, 149) + secret.text[:600] for secret in secrets]
        by = self.token()
        own = {"agent": agent, "session": session}
        self.send("POST", "/api/pause", own | {"reason": reasons[0], "by": by.text[:190]})
        self.send("POST", "/api/resume", own | {"reason": reasons[1]})
        self.send("POST", f"/api/sessions/{agent}/{session}/kill", {"reason": reasons[2]})
        self.send("POST", "/api/kill", {"agent": agent, "reason": reasons[3]})
        self.send("GET", f"/api/agents/{agent}")
        return [by]

    def switch(self, secrets):
        tag = self.token()
        self.send("PATCH", f"/api/agents/agent-{self.turn % 50}",
                  {"active": False, "reason": secrets[0].text[:999], "tags": [tag.text[:50]]})
        self.send("PATCH", f"/api/agents/agent-{self.turn % 50}", {"active": True, "reason": secrets[1].text[:999]})
        # A tag is cut at 50 characters, and the redactor cannot recognise half a token.
        return [tag] if len(tag.text) <= 50 else []

    def note(self, secrets):
        _, answer = self.send("GET", "/api/incidents?limit=1")
        own = [self.token() for _ in secrets]
        for incident in json.loads(answer).get("items", []):
            for secret, by in zip(secrets, own):
                self.send("POST", f"/api/incidents/{incident['id']}/acknowledge",
                          {"note": secret.text[:4999], "by": by.text})
        return own

    def policy(self, secrets):
        _, answer = self.send("GET", "/api/policies/default")
        reason = urllib.parse.quote(secrets[0].text[:999])
        self.send("PUT", f"/api/policies/default?reason={reason}", json.loads(answer)["document"], {"if-match": "*"})
        own = self.token()
        self.send("PUT", "/api/policies/default", {"preset": own.text, self.field(secrets[0]): 1}, {"if-match": "*"})
        return [own]

    def key(self, secrets):
        own = self.token()
        status, answer = self.send("POST", "/api/keys", {"name": own.text[:200], "role": "viewer"})
        if status == 201:
            made = json.loads(answer)["key"]
            return [own, kinds.Secret("made", made, made.rsplit("_", 1)[1])]
        return [own]

    def bad_request(self, secrets):
        for secret in secrets:
            self.send("POST", "/api/kill", {"agent": 5, self.field(secret): secret.text})
            self.send("POST", "/api/sessions", b'{"agent": ' + secret.text.encode())
            self.send("POST", "/api/login", {"key": secret.text[:200]})

    def receiver(self, secrets):
        """What a webhook answers is noted in the delivery log."""
        self.provider.reply = secrets[0].text.encode()
        self.send("POST", f"/api/alerts/targets/{self.server.target}/test")

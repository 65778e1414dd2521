"""What a guard costs: a guarded call against the bare client, in one run, and the guard alone."""

from __future__ import annotations

import statistics
import time

import conftest  # noqa: F401  (finds the stand-in)
import deadstop
import openai
import standin

ROUNDS, CALLS = 7, 60


def each(work, times):
    """Seconds a call takes."""
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times


def alone(work, times, rounds=ROUNDS):
    """Seconds of this thread's own time that a call takes: others may use the machine meanwhile."""

    def once():
        began = time.thread_time()
        for _ in range(times):
            work()
        return (time.thread_time() - began) / times

    work()
    return min(once() for _ in range(rounds))


def main():
    url = standin.start().url + "/v1"
    bare = openai.OpenAI(api_key="k", base_url=url)
    guarded = openai.OpenAI(api_key="k", base_url=url)
    policy = {"preset": "strict", "loop": {"enabled": False}, "text_loop": {"enabled": False}}
    session = deadstop.guard(guarded, agent="bench", policy=policy)
    numbers = iter(range(10**9))

    def ask(client):
        text = f"question {next(numbers)}"
        return lambda: client.chat.completions.create(
            model="gpt-4o-plain", messages=[{"role": "user", "content": text}]
        )

    # Side by side, so that whatever else the machine does hits both alike.
    ratios, times = [], []
    for _ in range(ROUNDS):
        without, with_guard = each(ask(bare), CALLS), each(ask(guarded), CALLS)
        ratios.append(with_guard / without)
        times.append((without, with_guard))
    without, with_guard = min(t[0] for t in times), min(t[1] for t in times)
    print(f"model call, bare            {without * 1e6:9.1f} µs")
    print(f"model call, guarded         {with_guard * 1e6:9.1f} µs")
    print(f"ratio, median of {ROUNDS} rounds   {statistics.median(ratios):9.3f}")

    tools = deadstop.session(agent="bench", policy=policy)

    def search(query: str, limit: int) -> str:
        return "three pages"

    plain = alone(lambda: search("deadstop", 10), 20_000)
    wrapped = tools.tool(search)
    whole = alone(lambda: wrapped("deadstop", 10), 5_000)
    print(f"tool call, the guard alone  {(whole - plain) * 1e6:9.2f} µs")

    body = b'{"model":"gpt-4o","messages":[{"role":"user","content":"How is the weather in Paris?"}]}'
    answer = b'{"choices":[{"message":{"content":"It rains."}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}'
    scope = tools._native.root()

    def exchange():
        call = scope.request("openai", "api.openai.com", "POST", "/v1/chat/completions", body)
        call.answer(200, "application/json")
        call.push(answer)
        call.finish()

    print(f"model call, the guard alone {alone(exchange, 5_000) * 1e6:9.2f} µs")
    session.restore()


if __name__ == "__main__":
    main()

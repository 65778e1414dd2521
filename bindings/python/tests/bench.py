"""What a guard costs: a guarded call against the bare client, in one run, and the guard alone."""

from __future__ import annotations

import asyncio
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import threading
import time

import deadstop
import openai

ROUNDS, CALLS = 7, 3_000
ANSWER = b'{"id":"c","object":"chat.completion","created":1,"model":"gpt-4o","choices":[{"index":0,"finish_reason":"stop",' \
    b'"message":{"role":"assistant","content":"It rains."}}],"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13}}'


def provider():
    """Answers every request alike, and as quickly as it can: in a process of its own, because two threads of one
    process take turns."""
    server = socket.create_server(("127.0.0.1", 0))
    print(server.getsockname()[1], flush=True)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)

    def serve(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read = b""
        while data := connection.recv(65536):
            read += data
            start, _, body = read.partition(b"\r\n\r\n")
            length = next((int(line[15:]) for line in start.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
            if _ and len(body) >= length:
                read = b""
                connection.sendall(head + ANSWER)

    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()


def alone(work, times, rounds=ROUNDS):
    """Seconds of this thread's own time that a call takes: others may use the machine meanwhile."""

    def once():
        began = time.thread_time()
        for _ in range(times):
            work()
        return (time.thread_time() - began) / times

    work()
    return min(once() for _ in range(rounds))


def compared(name, calls):
    """Prints what a guard adds: processor time of this process, call by call, so that others who use the machine
    change little. The first calls warm caches."""
    bare, guarded = (statistics.median(side[CALLS // 3 :]) * 1e6 for side in zip(*calls))
    print(f"{name} bare   {bare:9.1f} µs")
    print(f"{name} added  {guarded - bare:9.1f} µs")


def main():
    served = subprocess.Popen([sys.executable, pathlib.Path(__file__), "provider"], stdout=subprocess.PIPE, text=True)
    options = {"api_key": "k", "base_url": f"http://127.0.0.1:{served.stdout.readline().strip()}/v1"}
    policy = {"preset": "strict", "loop": {"enabled": False}, "text_loop": {"enabled": False}}
    numbers = iter(range(10**9))

    def ask(client):
        messages = [{"role": "user", "content": f"question {next(numbers)}"}]
        return client.chat.completions.create(model="gpt-4o", messages=messages)

    session = deadstop.session(agent="bench", policy=policy)
    def timed(client):
        began = time.process_time()
        ask(client)
        return time.process_time() - began

    clients = openai.OpenAI(**options), session.attach(openai.OpenAI(**options))
    compared("model call,      ", [[timed(client) for client in clients] for _ in range(CALLS)])

    async def timed_async(client):
        began = time.process_time()
        await ask(client)
        return time.process_time() - began

    async def awaited():
        clients = openai.AsyncOpenAI(**options), session.attach(openai.AsyncOpenAI(**options))
        return [[await timed_async(client) for client in clients] for _ in range(CALLS)]

    compared("async model call,", asyncio.run(awaited()))

    tools = deadstop.session(agent="bench", policy=policy)

    def search(query: str, limit: int) -> str:
        return "three pages"

    plain = alone(lambda: search("deadstop", 10), 20_000)
    wrapped = tools.tool(search)
    whole = alone(lambda: wrapped("deadstop", 10), 5_000)
    print(f"tool call, the guard alone {(whole - plain) * 1e6:9.2f} µs")

    body = b'{"model":"gpt-4o","messages":[{"role":"user","content":"How is the weather in Paris?"}]}'
    answer = b'{"choices":[{"message":{"content":"It rains."}}],"usage":{"prompt_tokens":9,"completion_tokens":4}}'
    scope = tools._native.root()

    def exchange():
        call = scope.request("openai", "api.openai.com", "POST", "/v1/chat/completions", body)
        call.whole(200, [(b"content-type", b"application/json")], answer)

    # What any judge needs at least: both bodies read.
    read = alone(lambda: (json.loads(body), json.loads(answer)), 5_000)
    print(f"model call, the guard alone{alone(exchange, 5_000) * 1e6:9.2f} µs")
    print(f"model call, json.loads     {read * 1e6:9.2f} µs")
    session.restore()
    served.kill()
    served.wait()


if __name__ == "__main__":
    provider() if sys.argv[1:] == ["provider"] else main()

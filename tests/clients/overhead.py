"""What Deadstop adds to a call of a real program, measured with what the program really sent.

One request or one hook event is taken from a run of the program and sent again many times. The two ways (direct
and through Deadstop) take turns, and the fastest times count: a busy machine slows some of each.
"""

import http.client
import subprocess
import time
import urllib.parse

TIMES = 25
#: Headers that belong to one connection.
HOP = {"host", "connection", "content-length", "transfer-encoding", "keep-alive", "upgrade", "expect"}


def per_model_call(direct, through, headers, body):
    """Milliseconds that a model call takes longer on its way through: the fastest of many, on each way."""
    headers = {name: value for name, value in headers if name.lower() not in HOP}
    pairs = [(asked(direct, headers, body), asked(through, headers, body)) for _ in range(TIMES)]
    alone, passed = (min(times) for times in zip(*pairs))
    return (passed - alone) * 1000


def asked(url, headers, body):
    """Seconds from a request's first byte to its answer's last one."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.connect()
    began = time.perf_counter()
    connection.request("POST", parts.path + (f"?{parts.query}" if parts.query else ""), body, headers)
    answer = connection.getresponse()
    said = answer.read()
    took = time.perf_counter() - began
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{url} answers {answer.status}: {said[:300]}")
    return took


def soonest(measure, enough):
    """What `measure` gives, in seconds or with the seconds first; measured again, three times at most, while it is
    more than `enough`: a busy machine is no fault of what is measured."""
    best = measure()
    for _ in range(2):
        if (best[0] if isinstance(best, tuple) else best) <= enough:
            break
        best = min(best, measure())
    return best


def per_tool_call(hooks, environment, folder):
    """Milliseconds of the hooks before and after one tool call: (command, event) each; the fastest runs, added."""
    def ran(command, event):
        began = time.perf_counter()
        subprocess.run(command, input=event, cwd=folder, env=environment, capture_output=True, timeout=30, check=True)
        return time.perf_counter() - began
    return sum(min(ran(command, event) for _ in range(TIMES)) for command, event in hooks) * 1000

"""`deadstop serve` on a free port, for the tests."""

import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


class Gateway:
    """A gateway whose providers are all at `upstream`. `policy` is a file; without one, the defaults hold."""

    def __init__(self, binary, folder, upstream, name, on_kill="error", policy=None, more=""):
        config = folder / f"{name}.toml"
        providers = "".join(f'[providers.{provider}]\nbase_url = "{upstream}"\n' for provider in ("openai", "anthropic", "gemini"))
        config.write_text(f'on_kill = "{on_kill}"\n{more}\n{providers}')
        self.log = folder / f"{name}.log"
        arguments = ["serve", "--listen", "127.0.0.1:0", "--data", folder / name, "--config", config]
        if policy:
            arguments += ["--policy", policy]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([binary, *map(str, arguments)], stdout=log, stderr=log)
        until = time.monotonic() + 20
        while not (found := re.search(r"listens on (http://\S+)", self.log.read_text())):
            if self.process.poll() is not None or time.monotonic() > until:
                self.stop()
                sys.exit(f"clients: the gateway did not start\n{self.log.read_text()}")
            time.sleep(0.02)
        self.url = found[1]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False
        return True

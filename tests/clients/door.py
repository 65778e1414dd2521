"""Stands in front of the gateway and counts what clients send to it, by API key.

A refused call never reaches the upstream, so only here can be seen whether an SDK tried it again.
Each request gets a connection of its own, and bytes of the answer pass as they come.
"""

import socket
import threading
from http.server import BaseHTTPRequestHandler

from standin import Server, api_key


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path.startswith("/_seen/"):
            data = str(self.server.seen.of(self.path.removeprefix("/_seen/"))["requests"]).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.seen.add(self.server.seen.requests, api_key(self.headers))
        head = [f"{self.command} {self.path} HTTP/1.1"]
        head += [f"{name}: {value}" for name, value in self.headers.items() if name.lower() != "connection"]
        head += ["Connection: close", "", ""]
        self.close_connection = True
        with socket.create_connection(self.server.gateway) as there:
            # A client that leaves must be missed there, too.
            threading.Thread(target=self.watch, args=(there,), daemon=True).start()
            there.sendall("\r\n".join(head).encode("latin-1") + body)
            try:
                while data := there.recv(65536):
                    self.connection.sendall(data)
            except OSError:
                pass

    def watch(self, there):
        try:
            while self.connection.recv(65536):
                pass
            there.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def start(gateway_url):
    """Starts it on a free port in front of a gateway."""
    server = Server(Handler)
    host, port = gateway_url.removeprefix("http://").split(":")
    server.gateway = (host, int(port))
    return server.begin()

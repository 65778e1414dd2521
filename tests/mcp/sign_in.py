"""The official Python SDK signs in at a server and uses it: `sign_in.py URL…`."""

import sys
from urllib.parse import parse_qs, urlparse

import anyio
import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata


class Storage:
    def __init__(self):
        self.tokens = self.client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def use(url):
    landed = []

    async def browse(address):
        """A browser in which the person says yes."""
        async with httpx2.AsyncClient() as browser:
            for _ in range(5):
                answer = await browser.get(address)
                assert answer.status_code in (302, 307), (address, answer.status_code, answer.text)
                address = answer.headers["location"]
                if address.startswith("http://127.0.0.1:9/"):
                    landed.append(parse_qs(urlparse(address).query))
                    return

    async def returned():
        query = landed[-1]
        return AuthorizationCodeResult(
            code=query["code"][0], state=query["state"][0], iss=query.get("iss", [None])[0])

    metadata = OAuthClientMetadata(client_name="test", redirect_uris=["http://127.0.0.1:9/back"])
    storage = Storage()
    auth = OAuthClientProvider(url, metadata, storage, browse, returned)
    async with httpx2.AsyncClient(auth=auth, timeout=30) as http:
        async with Client(streamable_http_client(url, http_client=http)) as client:
            with anyio.fail_after(30):
                added = await client.call_tool("add", {"a": 2, "b": 3})
    assert added.content[0].text == "5" and storage.tokens.access_token, added


async def main():
    for url in sys.argv[1:]:
        await use(url)
        print(f"ok    python signs in at {urlparse(url).path}", flush=True)


anyio.run(main)

"""An MCP server that wants a sign-in, with its own authorization server, made with the official Python SDK:
`locked.py http PORT`. It takes tokens for its own address only."""

import secrets
import sys
import time

from mcp.server.auth.provider import (
    AccessToken, AuthorizationCode, AuthorizationParams, RefreshToken, construct_redirect_uri)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthToken

HERE = f"http://127.0.0.1:{sys.argv[2]}"


class Login:
    """Lets every person in at once."""

    def __init__(self):
        self.clients, self.codes, self.tokens, self.renewals = {}, {}, {}, {}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client):
        self.clients[client.client_id] = client

    async def authorize(self, client, params: AuthorizationParams):
        code = secrets.token_hex(16)
        known = params.model_dump(exclude={"state"})
        known["scopes"] = params.scopes or []
        self.codes[code] = AuthorizationCode(
            code=code, client_id=client.client_id, expires_at=time.time() + 60, **known)
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client, code):
        return self.codes.get(code)

    async def exchange_authorization_code(self, client, code):
        del self.codes[code.code]
        return self.granted(client, code.resource)

    def granted(self, client, resource):
        token, renewal = secrets.token_hex(16), secrets.token_hex(16)
        self.tokens[token] = AccessToken(token=token, client_id=client.client_id, scopes=[], resource=resource)
        self.renewals[renewal] = RefreshToken(token=renewal, client_id=client.client_id, scopes=[], resource=resource)
        return OAuthToken(access_token=token, token_type="Bearer", expires_in=3600, refresh_token=renewal)

    async def load_refresh_token(self, client, token):
        return self.renewals.get(token)

    async def exchange_refresh_token(self, client, token, scopes):
        return self.granted(client, token.resource)

    async def load_access_token(self, token):
        return self.tokens.get(token)

    async def revoke_token(self, token):
        self.tokens.pop(token.token, None)


server = MCPServer("locked", auth_server_provider=Login(), auth=AuthSettings(
    issuer_url=HERE, resource_server_url=f"{HERE}/mcp", validate_token_resource=True,
    client_registration_options=ClientRegistrationOptions(enabled=True)))


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers"""
    return a + b


server.run("streamable-http", port=int(sys.argv[2]))

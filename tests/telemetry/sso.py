"""Single sign-on against a real OpenID provider (`oidc-provider` from npm): people get the role of their groups, and a
token that was made for another client, at another time or for another sign-in is not taken. Needs Node and npm."""

import http.cookiejar
import json
import os
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import install
from metrics import free_port
from server import Server

CONFIG = """
[sso]
issuer = "{issuer}"
client_id = "deadstop"
client_secret_env = "SSO_SECRET"
public_url = "{url}"
[sso.roles]
admin = ["root"]
operator = ["sre"]
"""


class Known(Server):
    """A server on a port that is known before it starts: the provider is told its address."""

    def __init__(self, binary, folder, port, issuer):
        url = f"http://127.0.0.1:{port}"
        os.environ["SSO_SECRET"] = "the-secret-of-the-client"
        config = f'listen = "127.0.0.1:{port}"\n' + CONFIG.format(issuer=issuer, url=url)
        super().__init__(binary, folder, config, listen=None)


class Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the browser below does."""

    def redirect_request(self, *_):
        return None


class Browser:
    """A browser of one person: cookies, and redirects one by one."""

    def __init__(self, who):
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies), Stay)
        self.opener.addheaders = []
        self.who = who
        self.seen = []

    def get(self, url, **headers):
        request = urllib.request.Request(url, headers=headers)
        if "/interaction/" in url:
            # The jar leaves a header alone that is there already.
            self.cookies.add_cookie_header(request)
            known = request.get_header("Cookie", "")
            request.add_unredirected_header("Cookie", f"who={self.who}; {known}")
        try:
            return self.opener.open(request, timeout=20)
        except urllib.error.HTTPError as error:
            return error

    def walk(self, url, until=lambda url: False):
        """Follows redirects; gives the last address."""
        for _ in range(15):
            if until(url):
                return url
            self.seen.append(url)
            answer = self.get(url)
            answer.read()
            if answer.status not in (301, 302, 303, 307):
                return url
            url = urllib.parse.urljoin(url, answer.headers["location"])
        raise AssertionError(f"goes round: {self.seen}")

    def whoami(self, server):
        answer = self.get(f"{server.url}/api/whoami")
        return answer.status, json.loads(answer.read())

    def cookie(self, name):
        return next((cookie for cookie in self.cookies if cookie.name == name), None)


def sign_in(server, who):
    browser = Browser(who)
    last = browser.walk(f"{server.url}/api/sso/login")
    return browser, last.removeprefix(server.url)


def check(binary, folder):
    problems = []
    node = install.node()
    port = free_port()
    redirect = f"http://127.0.0.1:{port}/api/sso/callback"
    provider = subprocess.Popen(["node", "provider.mjs", redirect], cwd=node, text=True,
                                stdout=subprocess.PIPE, stderr=(folder / "provider.log").open("w"))
    server = None

    def expect(found, wanted, what):
        if found != wanted:
            problems.append(f"{what}: {found!r}, not {wanted!r}")

    def spoil(how):
        request = urllib.request.Request(f"{issuer}/_next", json.dumps({"spoil": how}).encode(), method="PUT")
        return json.load(urllib.request.urlopen(request, timeout=10))["asked"]

    try:
        while not (issuer := provider.stdout.readline().strip()).startswith("http://"):
            if provider.poll() is not None:
                return ["the provider did not start: " + (folder / "provider.log").read_text()[-2000:]]
        server = Known(binary, folder / "server", port, issuer)
        expect(server.json("GET", "/api/sso"), {"enabled": True}, "the page is told")
        expect(sign_in(server, "ada")[1], "/sign-in?sso=failed", "without keys there is no login to make")
        server.make_key()

        ada, place = sign_in(server, "ada")
        expect(place, "/", "ada comes back")
        if place != "/":
            return problems + ada.seen + [server.log.read_text()[-2000:], (folder / "provider.log").read_text()[-2000:]]
        status, me = ada.whoami(server)
        expect((status, me.get("role"), me.get("name")), (200, "admin", "ada@example.org"), "ada is")
        login = ada.cookie("deadstop_login")
        if not login or not login.has_nonstandard_attr("HttpOnly") or login.get_nonstandard_attr("SameSite") != "Strict":
            problems.append(f"the cookie of the login: {login}")
        asked = next((url for url in ada.seen if "code_challenge=" in url), "")
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(asked).query)
        expect(query.get("code_challenge_method"), ["S256"], "PKCE")
        # A change needs the login's token, as with a key.
        body = json.dumps({"agent": "x", "new": True, "reason": "r"}).encode()
        for token, wanted in ((None, 403), (me.get("csrf_token"), 200)):
            headers = {"content-type": "application/json"} | ({"x-csrf-token": token} if token else {})
            request = urllib.request.Request(f"{server.url}/api/kill", body, headers, method="POST")
            try:
                status = ada.opener.open(request, timeout=20).status
            except urllib.error.HTTPError as error:
                status = error.code
            expect(status, wanted, f"a kill with the token {bool(token)}")

        expect(sign_in(server, "sam")[0].whoami(server)[1].get("role"), "operator", "sam is")
        eve, place = sign_in(server, "eve")
        expect((place, eve.whoami(server)[0]), ("/sign-in?sso=no_role", 401), "eve's group has no role")
        expect(sign_in(server, "nobody")[1], "/sign-in?sso=denied", "a sign-in that the provider refuses")

        for how in ("audience", "audiences", "expired", "early", "nonce", "no nonce", "issuer", "stranger", "unsigned",
                    "symmetric", "last"):
            before = spoil(how)
            browser, place = sign_in(server, "ada")
            expect((place, browser.whoami(server)[0]), ("/sign-in?sso=failed", 401), f"a token spoilt by {how}")
            expect(spoil(None), before + 1, f"{how}: the token was asked for")
        why = server.log.read_text()
        for said in ("InvalidAudience", "ExpiredSignature", "of another sign-in", "InvalidIssuer", "InvalidSignature",
                     "ImmatureSignature", "another client"):
            if said not in why:
                problems.append(f"the log does not say {said}")

        # The address that a browser came back by works once, and in that browser only.
        first = Browser("sam")
        back = first.walk(f"{server.url}/api/sso/login", until=lambda url: "/api/sso/callback" in url)
        thief = Browser("eve")
        expect(thief.walk(back).removeprefix(server.url), "/sign-in?sso=over", "another browser brings the code")
        kept = first.cookie("deadstop_sso").value
        expect(first.walk(back).removeprefix(server.url), "/", "the browser that began")
        again = Browser("sam")
        answer = again.get(back, cookie=f"deadstop_sso={kept}")
        expect(answer.headers.get("location"), "/sign-in?sso=failed", "the same code once more")
        forged = back.replace("state=", "state=x")
        expect(Browser("sam").get(forged, cookie=f"deadstop_sso={kept}").headers.get("location"),
               "/sign-in?sso=over", "another state")

        # People are listed with the keys. Revoking one ends the login and bars the next.
        people = {key["name"]: key for key in server.json("GET", "/api/keys")["items"]
                  if key["created_by"] == "single sign-on"}
        expect(sorted(people), ["ada@example.org", "sam@example.org"], "people")
        server.ask("DELETE", f"/api/keys/{people['sam@example.org']['id']}")
        expect(first.whoami(server)[0], 401, "sam, revoked")
        expect(sign_in(server, "sam")[1], "/sign-in?sso=revoked", "sam again")
        audit = server.json("GET", "/api/audit?limit=200")["items"]
        if not any(entry["action"] == "login" and entry["who"] == "ada@example.org" for entry in audit):
            problems.append("no login of ada in the audit")
        for secret in (kept, login.value, "the-secret-of-the-client"):
            if secret in why:
                problems.append("a secret is in the log")
        expect(server.ask("GET", "/api/status")[0], 200, "a machine's key")
    finally:
        provider.terminate()
        provider.wait(20)
        if server and not server.stop():
            problems.append("the server did not stop")
    return problems

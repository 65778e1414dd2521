// A real OpenID provider (`oidc-provider`) on a free port, with one client and people in groups. Its own sign-in page asks
// for nothing but a name.
//
// PUT /_next with {"spoil": …} changes the ID token of the next answer of /token: a token that the provider's key really
// signed, but with another audience, another time, another nonce, another issuer, without a signature, or signed by
// another key. "last" gives the last ID token once more.
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';
import { SignJWT, UnsecuredJWT, decodeJwt, exportJWK, generateKeyPair } from 'jose';

const redirect = process.argv[2];
const { privateKey } = await generateKeyPair('RS256', { extractable: true });
const { privateKey: stranger } = await generateKeyPair('RS256', { extractable: true });
const jwk = { ...await exportJWK(privateKey), kid: 'k1', alg: 'RS256', use: 'sig' };

const people = {
  ada: { email: 'ada@example.org', email_verified: true, groups: ['staff', 'root'] },
  sam: { email: 'sam@example.org', email_verified: true, groups: ['sre'] },
  eve: { email: 'ada@example.org', email_verified: false, preferred_username: 'eve', groups: ['visitors'] },
};

const server = createServer();
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [{ client_id: 'deadstop', client_secret: 'the-secret-of-the-client', redirect_uris: [redirect],
    token_endpoint_auth_method: 'client_secret_post' }],
  jwks: { keys: [jwk] },
  pkce: { required: () => true },
  claims: { openid: ['sub', 'groups', 'email', 'email_verified', 'preferred_username'] },
  conformIdTokenClaims: false,
  features: { devInteractions: { enabled: false } },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  cookies: { keys: ['of these tests'] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...people[id] }) }),
});

let spoil = null;
let last = null;
let asked = 0;

async function spoiled(token) {
  const claims = decodeJwt(token);
  const now = Math.floor(Date.now() / 1000);
  const sign = (key = privateKey) => new SignJWT(claims).setProtectedHeader({ alg: 'RS256', kid: 'k1' }).sign(key);
  switch (spoil) {
    case 'audience': claims.aud = 'another-client'; return sign();
    case 'audiences': claims.aud = ['deadstop', 'another-client']; claims.azp = 'another-client'; return sign();
    case 'expired': claims.exp = now - 3600; claims.iat = now - 7200; return sign();
    case 'early': claims.nbf = now + 3600; return sign();
    case 'nonce': claims.nonce = 'of another sign-in'; return sign();
    case 'no nonce': delete claims.nonce; return sign();
    case 'issuer': claims.iss = 'https://elsewhere.example'; return sign();
    case 'stranger': return sign(stranger);
    case 'unsigned': return new UnsecuredJWT(claims).encode();
    case 'symmetric':
      return new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid: 'k1' })
        .sign(new TextEncoder().encode('the-secret-of-the-client'));
    case 'last': return last;
    default: return token;
  }
}

provider.use(async (context, next) => {
  const { path, method } = context;
  if (path === '/_next') {
    let body = '';
    for await (const piece of context.req) body += piece;
    ({ spoil } = JSON.parse(body));
    context.body = { asked };
    return;
  }
  if (path.startsWith('/interaction/') && method === 'GET') {
    // Who signs in stands in a cookie of the test's browser.
    const account = context.cookies.get('who', { signed: false });
    const { prompt, params, grantId } = await provider.interactionDetails(context.req, context.res);
    if (account === 'nobody') {
      await provider.interactionFinished(context.req, context.res, { error: 'access_denied' });
    } else if (prompt.name === 'login') {
      await provider.interactionFinished(context.req, context.res, { login: { accountId: account } });
    } else {
      const grant = grantId ? await provider.Grant.find(grantId) : new provider.Grant({ accountId: account, clientId: params.client_id });
      grant.addOIDCScope('openid profile email');
      await provider.interactionFinished(context.req, context.res, { consent: { grantId: await grant.save() } });
    }
    context.respond = false;
    return;
  }
  await next();
  if (path === '/token') {
    asked += 1;
    if (context.body?.id_token) {
      const token = await spoiled(context.body.id_token);
      if (spoil !== 'last') last = context.body.id_token;
      context.body = { ...context.body, id_token: token };
    }
    spoil = null;
  }
});

server.on('request', provider.callback());
console.log(issuer);

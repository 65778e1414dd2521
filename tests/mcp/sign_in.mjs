// The official TypeScript SDK signs in at a server and uses it: `sign_in.mjs URL…`.

import assert from 'node:assert/strict';
import { UnauthorizedError } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const BACK = 'http://127.0.0.1:9/back';

class Provider {
  redirectUrl = BACK;
  clientMetadata = { client_name: 'test', redirect_uris: [BACK] };
  clientInformation = () => this.client;
  saveClientInformation = (client) => void (this.client = client);
  tokens = () => this.saved;
  saveTokens = (tokens) => void (this.saved = tokens);
  codeVerifier = () => this.verifier;
  saveCodeVerifier = (verifier) => void (this.verifier = verifier);

  /** A browser in which the person says yes. */
  async redirectToAuthorization(url) {
    let address = url.href;
    for (let hop = 0; hop < 5 && !address.startsWith(BACK); hop++) {
      const answer = await fetch(address, { redirect: 'manual' });
      assert.equal(answer.status, 302, `${address} ${await answer.text()}`);
      address = answer.headers.get('location');
    }
    this.code = new URL(address).searchParams.get('code');
  }
}

for (const url of process.argv.slice(2)) {
  const authProvider = new Provider();
  const transport = () => new StreamableHTTPClientTransport(new URL(url), { authProvider });
  const first = transport();
  await assert.rejects(new Client({ name: 'test', version: '1' }).connect(first), UnauthorizedError);
  await first.finishAuth(authProvider.code);
  const client = new Client({ name: 'test', version: '1' });
  await client.connect(transport());
  const added = await client.callTool({ name: 'add', arguments: { a: 2, b: 3 } });
  assert.equal(added.content[0].text, '5');
  await client.close();
  console.log(`ok    node signs in at ${new URL(url).pathname}`);
}

// The real program on a free port with a throwaway folder, a stand-in provider behind it, and agents in
// front of it.
import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { standin } from './standin.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const run = promisify(execFile);
/** The operator's token, where a server wants one. */
export const OPERATOR = 'the-operator-of-these-tests';

export function program() {
  const folder = process.env.CARGO_TARGET_DIR ?? join(here, '../../target');
  const bin = process.env.DEADSTOP_BIN ?? join(folder, 'debug/deadstop');
  if (!existsSync(bin)) throw new Error(`there is no ${bin}; build it, or set DEADSTOP_BIN`);
  return bin;
}

async function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export async function until(what, check, most = 60_000) {
  const end = Date.now() + most;
  for (;;) {
    const found = await check().catch(() => null);
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Writes a database with very many sessions and a very long one, or a month's work; cargo built the program for it. */
async function seed(folder, bin, how) {
  const writer = join(dirname(bin), 'examples/seed');
  if (!existsSync(writer)) throw new Error(`there is no ${writer}; cargo build -p deadstop-server --example seed`);
  return (await run(writer, [folder, ...how])).stdout.trim();
}

/**
 * A server with everything it needs; `stop` takes it all away again. `seeded` is what its database holds at
 * first, `says` what the provider answers before its own mind is asked; `trusted` takes every order from
 * every page, else loosening control takes the operator's token.
 */
export async function rig({ policy = 'strict', seeded = false, says, trusted = true } = {}) {
  const bin = program();
  const folder = mkdtempSync(join(tmpdir(), 'deadstop-page-'));
  if (seeded) console.log(await seed(join(folder, 'data'), bin, seeded === true ? [] : [seeded]));
  const provider = await standin(says);
  const address = `127.0.0.1:${await freePort()}`;
  const url = `http://${address}`;
  const config = join(folder, 'deadstop.toml');
  writeFileSync(config, `private_alerts = true\n[providers.openai]\nbase_url = "${provider.url}"\n`);
  let server = null;

  async function start() {
    const args = ['serve', '--listen', address, '--data', join(folder, 'data'), '--config', config, '--policy', policy];
    // Every page of these tests is the operator's, unless a test is about that.
    const env = trusted ? { ...process.env, DEADSTOP_TRUST_LOCAL: '1' } : { ...process.env, DEADSTOP_OPERATOR_TOKEN: OPERATOR };
    server = spawn(bin, args, { env, stdio: ['ignore', 'ignore', process.env.RIG_LOG ? 'inherit' : 'ignore'] });
    await until('the server', async () => (await fetch(`${url}/healthz`)).ok);
  }
  async function halt(signal = 'SIGTERM') {
    if (!server || server.exitCode !== null || server.signalCode !== null) return;
    const gone = new Promise((resolve) => server.once('exit', resolve));
    server.kill(signal);
    await gone;
  }
  await start();

  let key = null;
  const api = async (method, path, body, headers = {}) => {
    const response = await fetch(url + path, {
      method,
      headers: { ...(body ? { 'content-type': 'application/json' } : {}), ...(key ? { authorization: `Bearer ${key}` } : {}), ...headers },
      body: body ? JSON.stringify(body) : undefined,
    });
    const text = await response.text();
    return { status: response.status, body: text ? JSON.parse(text) : null };
  };

  /** One call of an agent through the gateway. */
  const call = async (agent, session, messages, more = {}) => {
    const response = await fetch(`${url}/agent/${encodeURIComponent(agent)}/openai/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-deadstop-session': session, ...(more.headers ?? {}) },
      body: JSON.stringify({ model: more.model ?? 'gpt-4o', messages, ...(more.body ?? {}) }),
      signal: more.signal,
    });
    if (more.body?.stream) return response;
    return { status: response.status, body: await response.json().catch(() => null) };
  };

  return {
    url, api, call, start, halt, folder,
    useKey(text) { key = text; },
    cli: (...args) => run(bin, args, { env: { ...process.env, DEADSTOP_URL: url, DEADSTOP_SERVER: url, DEADSTOP_OPERATOR_TOKEN: OPERATOR } }),
    async stop() {
      await halt();
      await provider.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const user = (text) => ({ role: 'user', content: text });

/** An agent that makes progress. */
export async function steady(rig, agent, session, turns, model = 'gpt-4o') {
  const messages = [user(`Write chapter by chapter for ${session}`)];
  for (let turn = 0; turn < turns; turn += 1) {
    const answer = await rig.call(agent, session, messages, { model });
    if (answer.status !== 200) return answer;
    messages.push(answer.body.choices[0].message, user(`go on with part ${turn} of ${session}: ${Math.random()}`));
  }
  return null;
}

/** An agent that deletes the same thing until it is stopped. */
export async function janitor(rig, agent, session, most = 8) {
  const messages = [user('Clean up the table fact_sales')];
  for (let turn = 0; turn < most; turn += 1) {
    const answer = await rig.call(agent, session, messages, { model: 'janitor' });
    if (answer.status !== 200) return answer;
    const said = answer.body.choices[0].message;
    messages.push(said);
    for (const one of said.tool_calls ?? []) messages.push({ role: 'tool', tool_call_id: one.id, content: 'the table still exists' });
  }
  return null;
}

/** An agent that says and hears the same until the similarity kill switch ends it. */
export async function parrot(rig, agent, session, { most = 30, pace = 0 } = {}) {
  for (let turn = 0; turn < most; turn += 1) {
    if (turn > 0 && pace > 0) await new Promise((resolve) => setTimeout(resolve, pace));
    const answer = await rig.call(agent, session, [user(`Please check order #${1000 + turn} once more and tell me whether it was shipped already`)], { model: 'parrot' });
    if (answer.status !== 200) return answer;
  }
  return null;
}

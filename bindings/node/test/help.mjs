// What all tests use: clients of a stand-in provider, and real servers.

import { spawn } from 'node:child_process';
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

export const { STANDIN, DEADSTOP_BIN, SCENARIOS } = process.env;
for (const name of Object.keys(process.env)) {
  if (/proxy|^(OPENAI|ANTHROPIC|DEADSTOP)_/i.test(name)) delete process.env[name];
}

export const openai = (options) => new OpenAI({ apiKey: 'k', baseURL: `${STANDIN}/v1`, maxRetries: 2, ...options });
export const anthropic = () => new Anthropic({ apiKey: 'k', baseURL: STANDIN, maxRetries: 2 });

export const MESSAGES = [{ role: 'user', content: 'Continue processing' }];
export const ask = (client, model = 'gpt-4o-plain', more = {}, options = {}) =>
  client.chat.completions.create({ model, messages: MESSAGES, ...more }, options);

/** Text that repeats itself is of no concern here. */
export const LOOSE = { text_loop: { enabled: false }, strikes: { enabled: false }, loop: { enabled: false } };

export async function eventually(check, seconds = 60) {
  const until = performance.now() + seconds * 1000;
  while (!(await check())) {
    if (performance.now() > until) throw new Error('it never came to that');
    await sleep(5);
  }
}

/** How often a session has said no. */
export const refusals = (session) => session.getCaptures().filter(({ what }) => what === 'refused').length;

/** What something throws. */
export async function thrown(work) {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

/** What orders bring that loosen control. */
export const OPERATOR = 'the-operator-of-these-tests';

/** `deadstop serve` on a free port. */
export class Server {
  constructor(t, folder) {
    this.folder = folder ?? mkdtempSync(join(tmpdir(), 'deadstop-node-'));
    t.after(async () => {
      await this.stop();
      rmSync(this.folder, { recursive: true, force: true });
    });
  }

  static async start(t, policy = {}) {
    const server = new Server(t);
    writeFileSync(join(server.folder, 'policy.json'), JSON.stringify(policy));
    await server.begin(0);
    return server;
  }

  async begin(port) {
    const file = join(this.folder, `log-${performance.now()}`);
    const log = openSync(file, 'w');
    const options = ['--listen', `127.0.0.1:${port}`, '--data', join(this.folder, 'data'), '--policy', join(this.folder, 'policy.json')];
    this.process = spawn(DEADSTOP_BIN, ['serve', ...options], {
      env: { ...process.env, DEADSTOP_OPERATOR_TOKEN: OPERATOR },
      stdio: ['ignore', log, log],
    });
    this.ended = new Promise((resolve) => this.process.once('exit', resolve));
    await eventually(() => {
      const text = readFileSync(file, 'utf8');
      if (this.process.exitCode !== null) throw new Error(text);
      this.url = /listens on (http:\/\/\S+)/.exec(text)?.[1];
      return this.url;
    });
  }

  async ask(method, path, body, more = {}) {
    const headers = { 'content-type': 'application/json', 'x-deadstop-operator': OPERATOR, ...more };
    const answer = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body) });
    return answer.json();
  }

  async stop() {
    this.process.kill();
    await this.ended;
  }
}

/** Runs a program of its own; gives what it said. */
export function run(program, env = {}, flags = [], stdin = 'ignore') {
  const child = spawn(process.execPath, [...flags, '--input-type=module', '-e', program], {
    env: { ...process.env, STANDIN, ...env },
    stdio: [stdin, 'pipe', 'pipe'],
  });
  const said = { stdout: '', stderr: '', code: null, signal: null };
  for (const name of ['stdout', 'stderr']) child[name].on('data', (data) => (said[name] += data));
  const timer = setTimeout(() => child.kill('SIGKILL'), 120_000);
  const ended = new Promise((resolve) =>
    child.once('close', (code, signal) => {
      clearTimeout(timer);
      resolve({ ...said, code, signal });
    }),
  );
  return Object.assign(ended, { child });
}

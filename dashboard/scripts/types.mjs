// Writes src/lib/api-types.ts from the server's own document, or with --check says whether it is stale.
//
// The document comes from DEADSTOP_URL if that is set (a server that runs), from DEADSTOP_OPENAPI if
// that is set (a file), and otherwise from a server that is started for it: DEADSTOP_BIN, or what
// cargo built last.
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import openapi, { astToString } from 'openapi-typescript';

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, '../src/lib/api-types.ts');
const head = '// Generated from the server\'s OpenAPI document by `npm run types`. Do not edit.\n';

function program() {
  const folder = process.env.CARGO_TARGET_DIR ?? join(here, '../../target');
  const found = [process.env.DEADSTOP_BIN, join(folder, 'debug/deadstop'), join(folder, 'release/deadstop')];
  const bin = found.find((path) => path && existsSync(path));
  if (!bin) throw new Error('no deadstop program found; build it, or set DEADSTOP_BIN or DEADSTOP_URL');
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

async function fetched(url) {
  const answer = await fetch(`${url}/api/openapi.json`);
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`);
  return answer.text();
}

async function started() {
  const data = mkdtempSync(join(tmpdir(), 'deadstop-types-'));
  const url = `http://127.0.0.1:${await freePort()}`;
  const server = spawn(program(), ['serve', '--listen', url.slice(7), '--data', data], { stdio: 'ignore' });
  try {
    for (let tries = 0; ; tries += 1) {
      try {
        return await fetched(url);
      } catch (error) {
        if (tries > 100 || server.exitCode !== null) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  } finally {
    server.kill();
    rmSync(data, { recursive: true, force: true });
  }
}

async function document() {
  if (process.env.DEADSTOP_OPENAPI) return readFileSync(process.env.DEADSTOP_OPENAPI, 'utf8');
  return process.env.DEADSTOP_URL ? fetched(process.env.DEADSTOP_URL) : started();
}

/**
 * What the page needs of the document: routes by their paths and what they answer when all is well.
 * Refusals all have the shape of `Problem`, and operation ids are not unique.
 */
function needed(read) {
  for (const item of Object.values(read.paths)) {
    for (const operation of Object.values(item)) {
      delete operation.operationId;
      const answers = Object.entries(operation.responses);
      operation.responses = Object.fromEntries(answers.filter(([status]) => Number(status) < 400));
    }
  }
  return read;
}

const text = head + astToString(await openapi(needed(JSON.parse(await document())), { alphabetize: true }));
const before = existsSync(target) ? readFileSync(target, 'utf8') : '';
if (!process.argv.includes('--check')) {
  writeFileSync(target, text);
} else if (text !== before) {
  console.error('src/lib/api-types.ts is stale: the API has changed; run `npm run types` and commit it');
  process.exit(1);
}

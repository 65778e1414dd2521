// The scenarios that every door must judge alike, run by the package; and through a server.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { DEADSTOP_BIN, OPERATOR, SCENARIOS, Server } from './help.mjs';

const scenarios = JSON.parse(readFileSync(SCENARIOS, 'utf8'));
const require = createRequire(import.meta.url);
const inside = (name) => require(join(dirname(require.resolve('deadstop/package.json')), 'lib', name));
const { Engine } = inside('native.js');
const { refusalOf } = inside('errors.js');

const HOW = { ok: 0, error: 1, fault: 2, cancelled: 3 };

function ask(engine, scope, step) {
  if ('tool' in step) return engine.tool(scope, step.tool, step.server ?? null, JSON.stringify(step.arguments));
  const { model, input_tokens = 0, max_output_tokens, prompt, provider, from_person = false } = step;
  return engine.model(scope, JSON.stringify({ model, input_tokens, max_output_tokens, prompt, provider, from_person }));
}

function last(engine, what) {
  return JSON.parse(engine.captures()).findLast((capture) => capture.what === what).verdict;
}

/** Settles a call; the verdict stands in its capture. */
function end(engine, call, step) {
  const how = HOW[step.status ?? 'ok'];
  if ('usage' in step) {
    const { input, output } = step.usage;
    engine.endModel(call, how, { input, output, cacheRead: 0, cacheWrite: 0 }, step.answer);
  } else {
    engine.end(call, how, typeof step.result === 'string' ? step.result : JSON.stringify(step.result ?? null));
  }
  return last(engine, 'settled');
}

function play(engine, { name, steps }) {
  const opened = new Map();
  steps.forEach((step, number) => {
    const at = `${name}, step ${number}`;
    engine.setClock(step.at ?? 0); // where there is a clock to set
    const scope = (step.scope ?? []).reduce((parent, name) => engine.scope(parent, name, '{}'), 0);
    if ('kill' in step) {
      engine.kill(0, step.kill);
    } else if ('limits' in step) {
      engine.setLimits(scope, JSON.stringify(step.limits));
    } else if ('end' in step) {
      assert.equal(end(engine, opened.get(step.end), step), step.then, at);
    } else {
      const decided = ask(engine, scope, step);
      if (typeof decided === 'string') {
        const { trip } = refusalOf(decided);
        assert.equal(`${trip.verdict} ${trip.guard}/${trip.code}`, step.expect, at);
        return;
      }
      // What was let pass with a warning stands in its capture.
      assert.equal(last(engine, 'admitted'), step.expect.split(' ')[0], at);
      if ('open' in step) opened.set(step.open, decided >>> 2);
      else assert.equal(end(engine, decided >>> 2, step), step.then, at);
    }
  });
}

test('there are scenarios', () => assert.ok(scenarios.length >= 20, String(scenarios.length)));

for (const scenario of scenarios) {
  test(`in the process: ${scenario.name}`, () => {
    const policy = JSON.stringify(scenario.policy);
    play(new Engine(JSON.stringify({ agent: 'agent', session: 's1', policy, clock: 0 }), () => undefined), scenario);
  });
}

test('with a server the same is said', async (t) => {
  const server = await Server.start(t);
  scenarios
    .filter((scenario) => !scenario.needs)
    .forEach((scenario, number) => {
      const file = join(server.folder, 'scenario.json');
      writeFileSync(file, JSON.stringify(scenario.policy));
      execFileSync(DEADSTOP_BIN, ['policy', 'set', file, '--reason', 'a test', '--server', server.url], {
        stdio: 'pipe', env: { ...process.env, DEADSTOP_OPERATOR_TOKEN: OPERATOR },
      });
      play(new Engine(JSON.stringify({ agent: `agent${number}`, session: 's', server: server.url }), () => undefined), scenario);
    });
});

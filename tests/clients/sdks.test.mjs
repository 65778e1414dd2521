// What every SDK must see through the gateway: the same objects when a call is allowed, one error and
// no second try when it is not.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, test as bare } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";

import { embed } from "ai";

import { sdks } from "./sdks.mjs";

const { STANDIN, GATEWAY, MESSAGES, DOOR, DEADSTOP_BIN } = process.env;
let numbers = 0;
// A broken answer may leave nothing to wait for; a test then ends by its time limit, not all of them.
const awake = setInterval(() => {}, 1000);
after(() => clearInterval(awake));
const test = (name, work) => bare(name, { timeout: 10_000 }, work);

// An agent with a key and a session of its own, behind the gateway at `url`.
class Agent {
  constructor(sdk, url) {
    const name = `${process.pid}-${numbers++}`;
    Object.assign(this, { sdk, url, key: `sk-node-${name}`, session: `node-${name}` });
    this.client = sdk.connect(url === STANDIN ? url : sdk.path(url), this.key, this.session);
  }

  async *events(model, stream, turns = this.sdk.begin(), more = undefined, signal = undefined) {
    const answer = await this.sdk.ask(this.client, model, turns, stream, signal, more);
    if (stream) yield* answer;
    else yield answer;
  }

  // Everything that came, as plain JSON.
  async ask(model, stream, turns, more) {
    const all = [];
    for await (const event of this.events(model, stream, turns, more)) all.push(event);
    const own = new Set(this.sdk.own);
    return JSON.parse(JSON.stringify(all, (key, value) => (own.has(key) ? undefined : value)));
  }

  async kill() {
    const server = this.url === MESSAGES ? MESSAGES : GATEWAY;
    const order = ["kill", this.session, "--server", server, "--reason", "enough of this"];
    await promisify(execFile)(DEADSTOP_BIN, order, { timeout: 10_000 });
  }

  // Requests at the gateway and at the upstream.
  async counted() {
    const door = await (await fetch(`${DOOR}/_seen/${this.key}`)).text();
    return [Number(door), (await this.upstream()).requests];
  }

  async upstream() {
    return (await fetch(`${STANDIN}/_seen/${this.key}`)).json();
  }

  async waitForOpen(number) {
    const until = Date.now() + 5000;
    while ((await this.upstream()).open !== number) {
      assert.ok(Date.now() < until, `not ${number} answers open at the upstream`);
      await sleep(10);
    }
  }
}

async function raised(sdk, work) {
  try {
    await work();
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error;
    assert.ok(sdk.raises(error), `not the SDK's own error: ${error?.stack ?? JSON.stringify(error)}`);
    return error;
  }
  assert.fail("nothing was raised");
}

// The sentence may stand in the message or in the error's body.
function check(error, ...words) {
  const told = `${error.message} ${error.responseBody ?? ""} ${JSON.stringify(error)}`;
  for (const word of words) assert.ok(told.includes(word), `no "${word}" in ${told}`);
}

for (const sdk of sdks) {
  for (const stream of [false, true]) {
    const name = `${sdk.name}, ${stream ? "stream" : "whole"}: `;

    for (const model of ["standin-plain", "standin-tool", "standin-gzip-plain", "standin-gzip-tool"]) {
      test(`${name}${model} gives the same objects`, async () => {
        const direct = await new Agent(sdk, STANDIN).ask(model, stream);
        const through = await new Agent(sdk, GATEWAY).ask(model, stream);
        // Asked for its usage, as the gateway does, OpenAI says `usage: null` until the last chunk.
        for (const chunk of through) if (chunk.usage === null) delete chunk.usage;
        assert.deepEqual(through, direct);
        assert.ok(stream ? direct.length > 4 : direct.length === 1);
      });
    }

    test(`${name}the provider's own errors stay what they are`, async () => {
      const told = [];
      for (const url of [STANDIN, GATEWAY]) {
        const error = await raised(sdk, () => new Agent(sdk, url).ask("standin-bad", stream));
        told.push([error.constructor.name, sdk.status(error), error.message]);
      }
      assert.deepEqual(told[0], told[1]);
    });

    test(`${name}a killed session raises once`, async () => {
      const agent = new Agent(sdk, DOOR);
      await agent.ask("standin-plain", stream);
      await agent.kill();
      const error = await raised(sdk, () => agent.ask("standin-plain", stream));
      assert.equal(sdk.status(error), 403);
      assert.equal(sdk.reason(error), "session_killed");
      check(error, "Deadstop stopped", "enough of this", "Do not retry");
      assert.deepEqual(await agent.counted(), [2, 1]);
    });

    test(`${name}a budget stop raises once`, async () => {
      const agent = new Agent(sdk, DOOR);
      // The answer that breaks the budget may itself be cut; it must not be asked for again.
      await agent.ask("standin-costly", stream).catch((error) => check(error, "over its budget of $1.00"));
      assert.deepEqual(await agent.counted(), [1, 1]);
      const error = await raised(sdk, () => agent.ask("standin-plain", stream));
      assert.equal(sdk.status(error), 402);
      check(error, "Deadstop stopped", "$1.00", "Do not retry");
      assert.deepEqual(await agent.counted(), [2, 1]);
    });

    test(`${name}a tool loop is stopped`, async () => {
      const agent = new Agent(sdk, DOOR);
      const ask = (turns, more) => agent.ask("standin-loop", stream, turns, more);
      check(await raised(sdk, () => sdk.loop(sdk, ask)), "Deadstop stopped", "get_weather");
      const [door, upstream] = await agent.counted();
      assert.equal(door, upstream);
      assert.ok(door >= 4 && door <= 6, `stopped after ${door}`);
      await raised(sdk, () => agent.ask("standin-plain", stream));
      assert.deepEqual(await agent.counted(), [door + 1, upstream]);
    });

    test(`${name}the last word as a message`, async () => {
      const agent = new Agent(sdk, MESSAGES);
      await agent.ask("standin-plain", stream);
      await agent.kill();
      const answer = JSON.stringify(await agent.ask("standin-plain", stream));
      assert.ok(answer.includes("enough of this") && answer.includes("Do not retry"), answer);
      assert.equal((await agent.upstream()).requests, 1);
    });
  }

  for (const model of ["standin-endless", "standin-gzip-endless"]) {
    test(`${sdk.name}: a kill cuts ${model} with one error`, async () => {
      const agent = new Agent(sdk, DOOR);
      let number = 0;
      let killed;
      const error = await raised(sdk, async () => {
        for await (const _ of agent.events(model, true)) {
          if (number++ === 8) {
            await agent.kill();
            killed = Date.now();
          }
        }
      });
      assert.ok(killed && Date.now() - killed < 2000);
      check(error, "enough of this");
      await agent.waitForOpen(0);
      assert.deepEqual(await agent.counted(), [1, 1]);
    });
  }

  test(`${sdk.name}: a kill ends an answer that does not come`, async () => {
    const agent = new Agent(sdk, DOOR);
    const began = Date.now();
    const killing = agent.waitForOpen(1).then(() => agent.kill());
    const error = await raised(sdk, () => agent.ask("standin-endless", false));
    assert.ok(Date.now() - began < 4000);
    assert.equal(sdk.status(error), 403);
    check(error, "enough of this");
    await killing;
    await agent.waitForOpen(0);
    assert.deepEqual(await agent.counted(), [1, 1]);
  });

  test(`${sdk.name}: a client that leaves ends the upstream`, async () => {
    const agent = new Agent(sdk, GATEWAY);
    const leaving = new AbortController();
    const reading = (async () => {
      for await (const _ of agent.events("standin-endless", true, undefined, undefined, leaving.signal));
    })().catch(() => {});
    await agent.waitForOpen(1);
    leaving.abort();
    await agent.waitForOpen(0);
    await reading;
  });
}

test("embeddings pass", async () => {
  const ask = async (url) => {
    const plain = new Agent(sdks[0], url);
    const vercel = new Agent(sdks[3], url);
    const input = ["one", "two"];
    const { data, usage } = await plain.client.embeddings.create({ model: "standin-embed", input });
    const model = vercel.client.provider.textEmbeddingModel?.("standin-embed") ?? vercel.client.provider.embedding("standin-embed");
    const { embedding } = await embed({ model, value: "one" });
    return JSON.parse(JSON.stringify([data, usage, embedding]));
  };
  assert.deepEqual(await ask(GATEWAY), await ask(STANDIN));
});

test("anthropic counts tokens", async () => {
  const ask = (url) => {
    const { client } = new Agent(sdks[2], url);
    return client.messages.countTokens({ model: "standin-plain", messages: sdks[2].begin() });
  };
  assert.deepEqual(await ask(GATEWAY), await ask(STANDIN));
});

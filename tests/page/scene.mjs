// What the pictures show: a few agents at their work, one that deletes the same table, one that asks the same
// again and again, calls that wait for a person, and a month behind them all.
import { rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rig, until } from './rig.mjs';

const POLICY = `preset = "strict"
ask_timeout_s = 1800
[budget]
max_cost_usd = 0.05
[access]
ask = ["delete_backup", "refund_*"]
[harm]
catastrophic = "ask"
serious = "ask"
[agent.budget]
max_cost_usd = 15.0
per = "day"
[project.budget]
max_cost_usd = 25.0
per = "day"
`;

/** What an agent is told first, then pairs: what its model says, and what the tool that it asks for brings. */
const SCRIPTS = {
  'quarterly-report': ['Write the report on the third quarter: revenue, churn, and what changed since the second.', [
    ['I start with the figures that finance has signed off.', 'query_ledger', { quarter: '2026-Q3' }, 'revenue 4.21M (Q2: 3.98M), refunds 61k, open invoices 212'],
    ['Revenue is up by 5.8%. Next is churn, by plan.', 'query_ledger', { table: 'churn', group_by: 'plan' }, 'starter 4.1%, team 2.2%, enterprise 0.3%'],
    ['Starter stands out. I look for what support heard from those who left.', 'search_tickets', { tag: 'cancelled', plan: 'starter' }, '38 tickets; 21 name the new export limit, 9 the price, 8 something else'],
    ['The export limit is named most often. I check when it came into force.', 'read_page', { path: 'changelog/2026-07' }, '2026-07-14: exports are limited to 5,000 rows on starter'],
    ['That fits: cancellations rise from the third week of July on. I draft the section on churn.', 'write_section', { title: 'Churn' }, 'saved, 412 words'],
    ['Now the summary, with the three figures that the board asked for.', 'write_section', { title: 'Summary' }, 'saved, 180 words'],
    ['The report is done: revenue up 5.8%, starter churn up 1.4 points, and its most likely cause with sources.', null],
  ]],
  'ticket-4711': ['A customer writes: my order 88213 has not arrived. Answer her.', [
    ['I look the order up.', 'find_order', { order: 88213 }, 'shipped on 2 November, carrier says: address incomplete'],
    ['The house number is missing. I ask her for it and offer to send it again.', 'send_reply', { ticket: 4711 }, 'sent'],
  ]],
  'issue-2093': ['Fix issue 2093: the export drops the last row.', [
    ['I read the exporter.', 'read_file', { path: 'src/export.rs' }, 'fn rows(&self) -> impl Iterator … take(self.len - 1)'],
    ['The range ends one too early. I change it.', 'edit_file', { path: 'src/export.rs' }, '1 line changed'],
    ['Now the tests.', 'run_tests', { package: 'export' }, 'test export::empty … FAILED: attempt to subtract with overflow'],
    ['An empty table must be handled as well. I look at the test.', 'read_file', { path: 'tests/export.rs' }, 'fn empty() { assert_eq!(export(&[]), "") }'],
    ['I guard the empty case.', 'edit_file', { path: 'src/export.rs', at: 41 }, '3 lines changed'],
    ['Tests once more.', 'run_tests', { package: 'export', all: true }, '14 passed'],
  ]],
  'manual-de': ['Translate the manual into German, chapter by chapter.', [
    ['Chapter one is about installing. I read it.', 'read_file', { path: 'manual/01.md' }, '2,310 words'],
    ['I keep the names of buttons as they are on the German page.', 'look_up', { term: 'kill switch' }, 'Notaus'],
    ['Chapter one is translated.', 'write_file', { path: 'manual/de/01.md' }, 'saved'],
  ]],
};

const user = (content) => ({ role: 'user', content });
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const size = (messages) => messages.reduce((sum, one) => sum + (one.content ?? '').length, 0);

/** What the stand-in says to a request of the scene; nothing to others. */
async function says(body) {
  const [session, turn] = (body.user ?? '').split('#');
  const usage = { prompt_tokens: 700 + 2 * size(body.messages), completion_tokens: 90 + (size(body.messages) % 160) };
  await pause(250 + (size(body.messages) % 700));
  if (session === 'cleanup') return { usage, message: { role: 'assistant', content: null, tool_calls: [asks(turn, 'delete_table', { table: 'fact_sales' })] } };
  if (session === 'backlog') return { usage, message: { role: 'assistant', content: 'I could not see yet whether the order was shipped. I will check the status once more and come back to you.' } };
  if (turn === 'last') return { usage, message: { role: 'assistant', content: `My part of ${session} is done; what I found is above.` } };
  const [text, tool, args] = SCRIPTS[session]?.[1][Number(turn)] ?? [];
  if (!text) return null;
  return { usage, message: { role: 'assistant', content: text, ...(tool ? { tool_calls: [asks(turn, tool, args)] } : {}) } };
}
const asks = (id, name, args) => ({ id: `call_${id}`, type: 'function', function: { name, arguments: JSON.stringify(args) } });

/** An agent that follows its script; what it hands on is asked in a scope of its own. */
async function follow(world, agent, session, { model = 'gpt-4o', scopes = [] } = {}) {
  const [task, turns] = SCRIPTS[session];
  const told = new Map([['', [user(task)]]]);
  for (const [turn, [text, tool, , result]] of turns.entries()) {
    const scope = scopes[turn] ?? '';
    const headers = scope ? { 'x-deadstop-scope': scope } : {};
    if (!told.has(scope)) told.set(scope, [user(`${task} Your part: ${text}`)]);
    const messages = told.get(scope);
    const answer = await world.call(agent, session, messages, { model, headers, body: { user: `${session}#${turn}` } });
    if (answer.status !== 200) throw new Error(`${session}: ${JSON.stringify(answer.body)}`);
    messages.push(answer.body.choices[0].message);
    if (tool) messages.push({ role: 'tool', tool_call_id: `call_${turn}`, content: result });
    if (tool && scope && scopes[turn + 1] !== scope) await world.call(agent, session, messages, { model, headers, body: { user: `${session}#last` } });
    await pause(400);
  }
}

/** Deletes the same table until it is stopped. */
async function cleans(world) {
  const messages = [user('Remove what is left of the old table fact_sales.')];
  for (let turn = 0; turn < 8; turn += 1) {
    const answer = await world.call('db-janitor', 'cleanup-fact-sales', messages, { body: { user: `cleanup#${turn}` } });
    if (answer.status !== 200) return;
    messages.push(answer.body.choices[0].message, { role: 'tool', tool_call_id: `call_${turn}`, content: 'done, but the table is still listed' });
  }
}

/** Asks the same about one order after the other until its kill switch ends it. */
async function asksAgain(world) {
  for (let turn = 0; turn < 30; turn += 1) {
    const answer = await world.call('order-bot', 'backlog', [user(`Please check order #${20461 + turn} once more and tell me whether it was shipped already.`)], { model: 'gpt-4o-mini', body: { user: `backlog#${turn}` } });
    if (answer.status !== 200) return;
    await pause(600);
  }
}

/** A place that takes messages, so that some are delivered. */
async function inbox() {
  const server = createServer((request, response) => request.resume().on('end', () => response.end('ok')));
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${server.address().port}/hook`, close: () => { server.closeAllConnections(); server.close(); } };
}

/** What happens in it, once it is there. */
async function play(world, hook) {
  const must = async (...asked) => {
    const answer = await world.api(...asked);
    if (answer.status >= 300) throw new Error(`${asked[0]} ${asked[1]}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  await must('PUT', '/api/settings', { ...(await must('GET', '/api/settings')), capture: 'all' });
  await must('PUT', '/api/agents/order-bot/kill-switch', { enabled: true, window_size: 20, threshold: 10 });
  await must('POST', '/api/alerts/targets', { name: 'On call', agent: null, events: ['kill', 'degraded'], active: true, target: { type: 'webhook', url: hook.url, secret: 'scene' } });
  await must('POST', '/api/alerts/targets', { name: 'Data team', agent: 'db-janitor', events: ['kill', 'trip'], active: true, target: { type: 'webhook', url: 'http://127.0.0.1:9/hooks/data' } });
  const guards = await must('GET', '/api/agents/coder/prevention-config');
  await must('PUT', '/api/agents/coder/prevention-config', { ...guards, agent_name: undefined, is_agent_override: undefined, loop_detection: { ...guards.loop_detection, threshold: 8 } });
  const propose = (agent, session, tool, args) => must('POST', `/api/sessions/${agent}/${session}/proposal`, { calls: [{ id: tool, tool, arguments: args }] });
  await Promise.all([
    follow(world, 'researcher', 'quarterly-report', { scopes: ['', '', 'churn', 'churn', 'churn/section', '', ''] }),
    follow(world, 'support', 'ticket-4711', { model: 'house-llama-70b' }),
    follow(world, 'coder', 'issue-2093'), follow(world, 'translator', 'manual-de', { model: 'gpt-4o-mini' }),
    cleans(world), asksAgain(world),
  ]);
  await must('POST', '/api/sessions/support/ticket-4711/pause', { reason: 'Waiting for the customer; Ada will go on with it' });
  await propose('bookkeeper', 'close-october', 'refund_invoice', { invoice: 'R-20417', amount_eur: 1890, reason: 'paid twice' });
  await propose('backup-keeper', 'weekly', 'delete_backup', { name: 'prod-2026-10-04', bucket: 'backups-eu' });
  await propose('coder', 'issue-2093', 'Bash', { command: 'git fetch origin && git reset --hard origin/main && git push --force origin main' });
  const hangUp = new AbortController();
  world.call('researcher', 'market-scan', [user('Summarise what was written about us this week.')], { body: { stream: true }, signal: hangUp.signal }).catch(() => {});
  const incidents = await until('both incidents', async () => {
    const { items } = await must('GET', '/api/incidents');
    return items.length >= 2 && items.some((one) => one.score !== null) ? items : null;
  });
  await until('a delivery', async () => (await must('GET', '/api/alerts/deliveries')).items.some((one) => one.state === 'delivered'));
  return {
    world, must,
    scored: incidents.find((one) => one.score !== null), plain: incidents.find((one) => one.guard === 'destructive'),
    hangUp: () => hangUp.abort(),
  };
}

/** The world of the pictures; `stop` takes it away again. */
export async function scene() {
  const policy = join(tmpdir(), `deadstop-scene-${process.pid}.toml`);
  writeFileSync(policy, POLICY);
  const world = await rig({ policy, seeded: 'month', says });
  const hook = await inbox();
  const stop = async () => {
    hook.close();
    await world.stop();
    rmSync(policy);
  };
  try {
    const played = await play(world, hook);
    return { ...played, stop: async () => { played.hangUp(); await stop(); } };
  } catch (error) {
    await stop();
    throw error;
  }
}

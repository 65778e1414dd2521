// A gallery for whoever changes the page: every page, at two widths, light and dark. `node shots.mjs`.
import { mkdirSync } from 'node:fs';
import { chromium } from 'playwright-core';
import { janitor, parrot, rig, steady } from './rig.mjs';
import { NASTY } from './standin.mjs';

const out = process.env.SHOTS ?? 'shots';
const only = process.argv.slice(2);
mkdirSync(out, { recursive: true });
const world = await rig();
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
try {
  await world.api('PUT', '/api/settings', { ...(await world.api('GET', '/api/settings')).body, capture: 'all' });
  await world.api('PUT', '/api/agents/parrot/kill-switch', { enabled: true, window_size: 10, threshold: 5 });
  const guard = (await world.api('GET', '/api/projects/prevention-config')).body;
  await world.api('PUT', '/api/projects/prevention-config', { ...guard, agent_name: undefined, is_agent_override: undefined, budget: { max_cost_usd: 0.5, soft_alert_threshold_usd: null, max_wall_time_seconds: 3600 } }).then((r) => r.status === 200 || console.log(r.body));
  await world.api('POST', '/api/alerts/targets', { name: 'On call', agent: null, events: ['kill', 'degraded'], active: true, target: { type: 'webhook', url: 'http://127.0.0.1:9/hook', secret: 'x' } });
  await Promise.all([
    steady(world, 'researcher', 'quarterly-report', 12), steady(world, 'researcher', 'market-scan', 6, 'gpt-4o-mini'),
    steady(world, 'support', 'ticket-4711', 5, 'my-own-model'), janitor(world, 'janitor', 'cleanup-1'), parrot(world, 'parrot', 'orders', { pace: 900 }),
    world.call(NASTY.slice(0, 60), 'odd <b>name</b>', [{ role: 'user', content: NASTY }], { model: 'html' }),
  ]);
  await world.api('POST', '/api/sessions/support/ticket-4711/pause', { reason: 'wait for the customer' });
  const hangUp = new AbortController();
  world.call('researcher', 'long-answer', [{ role: 'user', content: 'tell me everything' }], { body: { stream: true }, signal: hangUp.signal }).catch(() => {});
  await new Promise((resolve) => setTimeout(resolve, 2500));
  const incidents = (await world.api('GET', '/api/incidents')).body.items;
  const scored = incidents.find((one) => one.score !== null) ?? incidents[0];
  const pages = {
    now: '/', agents: '/agents', agent: '/agents/researcher', 'agent-stopped': '/agents/parrot', guards: '/agents/researcher/guards',
    'kill-switch': '/agents/parrot/kill-switch', 'agent-sessions': '/agents/researcher/sessions', 'agent-alerts': '/agents/researcher/alerts',
    sessions: '/sessions', session: '/sessions/researcher/quarterly-report', 'session-stopped': '/sessions/janitor/cleanup-1', tree: '/sessions/janitor/cleanup-1?view=tree',
    conversation: '/sessions/researcher/market-scan?view=conversation', incidents: '/incidents', 'incidents-all': '/incidents?view=all',
    incident: `/incidents/${scored?.id}`, 'incident-plain': `/incidents/${incidents.find((one) => one.score === null)?.id}`, costs: '/costs', 'costs-model': '/costs?by=model', 'costs-hour': '/costs?by=hour',
    alerts: '/alerts', audit: '/audit', settings: '/settings', capture: '/settings/kept', keys: '/settings/keys', prices: '/settings/prices?model=my-own-model', 'sign-in': '/sign-in', nowhere: '/settings/a/b/c',
  };
  for (const [size, width, height] of [['desktop', 1360, 850], ['phone', 390, 844]]) {
    for (const scheme of ['light', 'dark']) {
      const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, deviceScaleFactor: 1 });
      const page = await context.newPage();
      page.on('console', (message) => message.type() === 'error' && console.log(size, page.url(), message.text()));
      page.on('pageerror', (error) => console.log(size, page.url(), String(error)));
      for (const [name, path] of Object.entries(pages)) {
        if (only.length > 0 && !only.some((wanted) => `${name}-${size}-${scheme}`.includes(wanted))) continue;
        await page.goto(world.url + path);
        await page.waitForTimeout(900);
        await page.screenshot({ path: `${out}/${name}-${size}-${scheme}.png`, fullPage: size === 'phone' });
      }
      await context.close();
    }
  }
  hangUp.abort();
} finally {
  await browser.close();
  await world.stop();
}

// A browser that notices everything a page should not do: errors, refused scripts, broken requests.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export async function browse() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
}

/** A page that remembers what went wrong. `expected` lets pass what a test provokes. */
export async function open(browser, { width = 1280, height = 820, scheme = 'light', expected = [] } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme });
  await context.addInitScript(() => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (event) => window.violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
  });
  const page = await context.newPage();
  const wrong = [];
  const note = (text) => expected.some((pattern) => pattern.test(text)) || wrong.push(text);
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && note(`${message.type()}: ${message.text()} (${message.location().url})`));
  page.on('pageerror', (error) => note(`error: ${error}`));
  page.setDefaultTimeout(60_000);
  return {
    page,
    /** What went wrong since it was asked last. */
    async wrong() {
      return [...wrong.splice(0), ...(await page.evaluate(() => window.violations.splice(0)))];
    },
    /** Fails if anything went wrong, and forgets it. */
    async fine(where) {
      assert.deepEqual(await this.wrong(), [], `${where}: nothing may go wrong`);
    },
    /** What axe finds, contrast included. */
    async barriers() {
      await page.evaluate(AXE);
      return page.evaluate(async () => {
        const { violations } = await window.axe.run(document, { resultTypes: ['violations'] });
        return violations.map((one) => `${one.id}: ${one.nodes.slice(0, 4).map((node) => `${node.target.join(' ')} ${node.any[0]?.message ?? ''}`).join(' | ')}`);
      });
    },
    close: () => context.close(),
  };
}

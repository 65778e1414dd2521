// Every page of the dashboard as the pictures show it: its name, its heading in docs/pages.md, what is said
// there about it, and how one gets there.

/** The pages; `path` is told what the scene knows, `act` does what a person would do before looking. */
export const GALLERY = [
  ['now', 'Now', 'Who runs, nearest to a limit first; stop, pause, the red button.', () => '/'],
  ['stop-everything', 'The red button', 'Asks for a reason, and to have it typed out.', () => '/', (page) => page.locator('main').getByRole('button', { name: 'Stop everything' }).click()],
  ['find', 'Find anything', '`/` or Cmd-K, from every page.', () => '/', async (page) => { await page.keyboard.press('/'); await page.keyboard.type('re'); }],
  ['agents', 'Agents', 'Switch, health, loops, cost.', () => '/agents'],
  ['agent', 'An agent', 'Calls and cost over time.', () => '/agents/researcher?span=30d'],
  ['agent-stopped', 'An agent that the kill switch ended', 'Why, and what to read before it is switched on.', () => '/agents/order-bot'],
  ['guards', 'Guards', 'An agent\'s own, or the project default; tried on stored sessions before they are saved.', () => '/agents/coder/guards'],
  ['kill-switch', 'Kill Switch Settings', 'Presets, window, threshold, and how the score is made.', () => '/agents/order-bot/kill-switch'],
  ['agent-sessions', 'An agent\'s sessions', 'The newest first.', () => '/agents/researcher/sessions'],
  ['agent-alerts', 'An agent\'s alerts', 'Who is told about it.', () => '/agents/db-janitor/alerts'],
  ['sessions', 'Sessions', 'As many as there are.', () => '/sessions'],
  ['session', 'A session', 'Replayed call by call: the strip, the timeline, and beside it what was spent and what every guard held at that moment.', () => '/sessions/researcher/quarterly-report'],
  ['session-stopped', 'A session that was stopped', 'The playhead stands where it ended; below, the calls that counted as the same.', () => '/sessions/db-janitor/cleanup-fact-sales'],
  ['tree', 'Its scopes', 'What is nested in it, and what each came to.', () => '/sessions/researcher/quarterly-report?view=tree'],
  ['conversation', 'Its conversation', 'What was asked and answered, if that is kept.', () => '/sessions/researcher/quarterly-report?view=conversation'],
  ['requests', 'Requests', 'Every call, the newest first, by agent, session, model, tool, verdict and time.', () => '/requests'],
  ['request', 'A request', 'What was decided about it, what it used, and what is kept of it.', () => '/requests?agent=db-janitor&verdict=kill', (page) => page.getByRole('region', { name: 'Requests' }).getByRole('row').nth(1).getByRole('link').first().click()],
  ['incidents', 'Incidents', 'With score, window and signals.', () => '/incidents'],
  ['incidents-groups', 'Incidents in groups', 'By what happened to whom.', () => '/incidents?view=groups'],
  ['incident', 'An incident', 'From its sentence to its evidence.', ({ scored }) => `/incidents/${scored.id}`],
  ['incident-plain', 'An incident without a score', 'Most guards count something, and say what.', ({ plain }) => `/incidents/${plain.id}`],
  ['approvals', 'Approvals', 'Calls that wait for a person: what they would do, why approval is needed, and the buttons.', () => '/approvals'],
  ['costs', 'Costs by agent', 'And budgets against spend.', () => '/costs'],
  ['costs-model', 'Costs by model', 'A model without a known price links to the form.', () => '/costs?by=model', (page) => page.getByText('charged at that price').scrollIntoViewIfNeeded()],
  ['costs-day', 'Costs by day', 'With the budget as a line.', () => '/costs?by=day'],
  ['costs-hour', 'Costs by hour', 'As long as calls are kept.', () => '/costs?by=hour'],
  ['alerts', 'Alerts', 'Where they go, and what was sent.', () => '/alerts'],
  ['audit', 'Audit', 'Who did what, when and why; verified.', () => '/audit'],
  ['settings', 'Project default', 'The guards of every agent that has none of its own.', () => '/settings'],
  ['kept', 'What is kept', 'And for how long.', () => '/settings/kept'],
  ['prices', 'Prices', 'Own ones on top of the catalogue.', () => '/settings/prices?model=house-llama-70b'],
  ['nowhere', 'An address that leads nowhere', '', () => '/settings/a/b'],
];

/** Pages that need a world of their own: nothing has happened yet; keys were made, and who has none stands outside. */
export const APART = [
  ['first-call', 'The first call', 'With no data the page teaches, and waits.', () => '/'],
  ['keys', 'Keys', 'Who may do what.', () => '/settings/keys'],
  ['sign-in', 'Signing in', 'With a key.', () => '/sign-in'],
];

// A stand-in for a provider: OpenAI's chat completions, with a mind that the model's name decides.
//
// `steady` says something new each time; `parrot` always the same; `janitor` deletes the same table
// again and again; `endless` streams until the client hangs up; `html` says what a page must not run.
import { createServer } from 'node:http';

const WORDS = 'amber basin cobalt drift ember fjord granite harbor indigo juniper kelp lantern mesa nimbus orchid pebble quartz ripple saffron tundra umber violet willow xenon yarrow zephyr'.split(' ');
export const NASTY = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script> \u202Egnol\u202C 👾 </textarea>';

let asked = 0;

function sentence(seed, many = 30) {
  let state = seed * 2654435761 % 4294967296;
  return Array.from({ length: many }, () => {
    state = (state * 1664525 + 1013904223) % 4294967296;
    return WORDS[Math.floor(state / 4294967296 * WORDS.length)];
  }).join(' ');
}

function message(model, number) {
  if (model.startsWith('parrot')) return { role: 'assistant', content: 'I will try that again and see whether it works this time around, as planned before.' };
  if (model.startsWith('html')) return { role: 'assistant', content: `${NASTY} ${sentence(number)}` };
  if (model.startsWith('janitor')) {
    const call = { name: 'delete_table', arguments: JSON.stringify({ table: 'fact_sales' }) };
    return { role: 'assistant', content: null, tool_calls: [{ id: `call_${number}`, type: 'function', function: call }] };
  }
  return { role: 'assistant', content: `${number}: ${sentence(number, 60)}` };
}

async function stream(response, model, number) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const text = sentence(number, 2000).split(' ');
  const timer = setInterval(() => {
    const word = text.shift();
    if (word === undefined) {
      clearInterval(timer);
      response.end('data: [DONE]\n\n');
      return;
    }
    const chunk = { id: `c${number}`, object: 'chat.completion.chunk', model, choices: [{ index: 0, delta: { content: `${word} ` }, finish_reason: null }] };
    response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  }, 50);
  response.on('close', () => clearInterval(timer));
}

/** Starts it on a free port; `says` may give a message, its usage and headers for a request. */
export async function standin(says = async () => null) {
  const server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const body = JSON.parse(Buffer.concat(parts).toString() || '{}');
    const model = body.model ?? 'steady';
    const number = (asked += 1);
    if (model.startsWith('broken')) {
      response.writeHead(500, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ error: { message: 'the stand-in is out of order' } }));
      return;
    }
    if (body.stream) return void stream(response, model, number);
    const told = await says(body);
    const said = told?.message ?? message(model, number);
    response.writeHead(200, { 'content-type': 'application/json', ...told?.headers });
    response.end(JSON.stringify({
      id: `c${number}`, object: 'chat.completion', model, created: 0,
      choices: [{ index: 0, message: said, finish_reason: said.tool_calls ? 'tool_calls' : 'stop' }],
      usage: told?.usage ?? { prompt_tokens: 1200 + number, completion_tokens: 340, total_tokens: 1540 + number },
    }));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    close: () => new Promise((resolve) => { server.closeAllConnections(); server.close(resolve); }),
  };
}

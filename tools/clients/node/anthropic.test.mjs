// The official Anthropic client for Node.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { z } from 'zod';
import { ASK, MODEL, finished, idle, serve } from './served.mjs';

let server, client;
before(async () => {
  server = await serve();
  client = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
});
after(() => server.stop());

const base = { model: MODEL, messages: ASK, max_tokens: 24, seed: 5 };
const say = (more = {}) => client.messages.create({ ...base, ...more });
const text = (m) => m.content.filter((b) => b.type === 'text').map((b) => b.text).join('');
const weather = {
  name: 'weather', description: 'The weather of a city.', strict: true,
  input_schema: {
    type: 'object', required: ['city', 'days'], additionalProperties: false,
    properties: { city: { type: 'string', maxLength: 20 }, days: { type: 'integer', minimum: 1, maximum: 9 } },
  },
};

test('a stream accumulates to the whole', async () => {
  const whole = await say();
  assert.ok(text(whole) && whole.stop_reason === 'max_tokens' && whole.usage.output_tokens === 24);
  const stream = client.messages.stream(base);
  let pieces = '';
  stream.on('text', (delta) => (pieces += delta));
  const final = await stream.finalMessage();
  assert.deepEqual([pieces, text(final), final.usage.output_tokens], [text(whole), text(whole), 24]);
});

test('thinking is a block of its own', async () => {
  const thinking = { type: 'enabled', budget_tokens: 1024 };
  const whole = await say({ thinking });
  assert.deepEqual(whole.content.map((b) => b.type), ['thinking']);
  const final = await client.messages.stream({ ...base, thinking }).finalMessage();
  assert.equal(final.content[0].thinking, whole.content[0].thinking);
  assert.ok(final.content[0].signature);
});

test('nothing of a stop sequence is shown', async () => {
  const first = text(await say());
  const stop = first.slice(9, 15);
  const got = await say({ stop_sequences: [stop] });
  assert.deepEqual([text(got), got.stop_reason, got.stop_sequence], [first.slice(0, first.indexOf(stop)), 'stop_sequence', stop]);
});

for (const choice of [{ type: 'any' }, { type: 'tool', name: 'weather' }]) {
  test(`a call is made where the choice is ${choice.type}`, async () => {
    for (let seed = 0; seed < 3; seed++) {
      const more = { tools: [weather], tool_choice: { ...choice, disable_parallel_tool_use: true }, max_tokens: 600, seed };
      const whole = await say(more);
      if (whole.stop_reason === 'max_tokens') continue;
      const call = whole.content.find((b) => b.type === 'tool_use');
      assert.ok(call.name === 'weather' && call.input.days >= 1 && call.input.days <= 9);
      const final = await client.messages.stream({ ...base, ...more }).finalMessage();
      assert.deepEqual(final.content.find((b) => b.type === 'tool_use').input, call.input);
      const messages = [...ASK, { role: 'assistant', content: whole.content }, { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'Sunny.' }] }];
      assert.ok((await say({ messages, tools: [weather] })).content.length);
    }
  });
}

test('a message is parsed into the type of the caller', async () => {
  const Verse = z.object({ book: z.enum(['Genesis', 'Exodus']), chapter: z.number().int() });
  const got = await finished((seed) => client.messages.parse({ ...base, max_tokens: 600, seed, output_config: { format: zodOutputFormat(Verse) } }));
  assert.deepEqual(Verse.parse(got.parsed_output), got.parsed_output);
});

test('tokens are counted as they are charged', async () => {
  for (const more of [{}, { system: 'Be brief.' }, { tools: [weather] }]) {
    const { input_tokens } = await client.messages.countTokens({ model: MODEL, messages: ASK, ...more });
    const { usage } = await say(more);
    assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
  }
});

test('models', async () => {
  assert.deepEqual((await client.models.list()).data.map((m) => m.id), [MODEL]);
  assert.equal((await client.models.retrieve(MODEL)).max_input_tokens, 8192);
});

test('errors have types', async () => {
  const fails = async (promise, kind, type) => {
    const e = await promise.then(() => assert.fail('no error'), (e) => e);
    assert.ok(e instanceof kind && e.error.error.type === type && e.requestID, String(e));
    return e;
  };
  for (const stream of [false, true]) {
    await fails(say({ temperature: 9, stream }), Anthropic.BadRequestError, 'invalid_request_error');
    await fails(say({ model: 'gpt-9', stream }), Anthropic.NotFoundError, 'not_found_error');
  }
  const keyed = await serve(['--max-batch', '1', '--max-queue', '1'], 'secret');
  const to = (apiKey, maxRetries = 0) => new Anthropic({ baseURL: keyed.url, apiKey, maxRetries });
  await fails(to('wrong').messages.create(base), Anthropic.AuthenticationError, 'authentication_error');
  const long = { ...base, max_tokens: 8000, ignore_eos: true, stream: true };
  const streams = [await to('secret').messages.create(long), await to('secret').messages.create(long)];
  const e = await fails(to('secret').messages.create(base), Anthropic.InternalServerError, 'overloaded_error');
  assert.ok(e.status === 503 && Number(e.headers.get('retry-after')) >= 1);
  const patient = to('secret', 5).messages.create(base);
  for (const s of streams) s.controller.abort();
  assert.ok(text(await patient));
  await keyed.stop();
});

test('a client that goes away ends its work', async () => {
  let n = 0;
  for await (const _ of await say({ max_tokens: 8000, ignore_eos: true, stream: true })) if (++n === 4) break;
  await idle(server.url);
});

// The official OpenAI client for Node.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { ASK, MODEL, finished, idle, serve } from './served.mjs';

let server, client;
before(async () => {
  server = await serve();
  client = new OpenAI({ baseURL: server.url + '/v1', apiKey: 'none', maxRetries: 0 });
});
after(() => server.stop());

const chat = (more = {}, options) => client.chat.completions.create({ model: MODEL, messages: ASK, max_tokens: 24, seed: 5, ...more }, options);
const respond = (more = {}) => client.responses.create({ model: MODEL, input: 'Speak of Moses.', max_output_tokens: 24, seed: 5, ...more });
const weather = {
  type: 'function',
  function: {
    name: 'weather', description: 'The weather of a city.', strict: true,
    parameters: {
      type: 'object', required: ['city', 'days'], additionalProperties: false,
      properties: { city: { type: 'string', maxLength: 20 }, days: { type: 'integer', minimum: 1, maximum: 9 } },
    },
  },
};
const Verse = z.object({ book: z.enum(['Genesis', 'Exodus']), chapter: z.number().int().min(1).max(50), words: z.array(z.enum(['and', 'said'])).max(3), speaker: z.string().max(20).nullable() });

test('a stream accumulates to the whole', async () => {
  const whole = (await chat()).choices[0];
  let text = '', finish;
  for await (const chunk of await chat({ stream: true })) {
    text += chunk.choices[0].delta.content ?? '';
    finish = chunk.choices[0].finish_reason ?? finish;
  }
  assert.notEqual(text, '');
  assert.deepEqual([text, finish], [whole.message.content, whole.finish_reason]);
});

test('the helper for streams accumulates to the whole, with usage', async () => {
  const whole = await chat();
  const stream = client.chat.completions.stream({ model: MODEL, messages: ASK, max_tokens: 24, seed: 5, stream_options: { include_usage: true } });
  let text = '';
  stream.on('content', (delta) => (text += delta));
  const final = await stream.finalChatCompletion();
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(final.choices[0].message.content, text);
  assert.equal((await stream.totalUsage()).completion_tokens, 24);
});

test('choices, seeds, log-probabilities and stops', async () => {
  const several = await chat({ n: 3, logprobs: true, top_logprobs: 2, temperature: 1 });
  const texts = several.choices.map((c) => c.message.content);
  assert.equal(new Set(texts).size, 3);
  assert.deepEqual((await chat({ n: 3, temperature: 1 })).choices.map((c) => c.message.content), texts);
  const tokens = several.choices[0].logprobs.content;
  assert.equal(Buffer.from(tokens.flatMap((t) => t.bytes)).toString(), texts[0]);
  assert.ok(tokens.every((t) => t.top_logprobs.length === 2 && t.logprob <= 0));
  const text = (await chat({ temperature: 0 })).choices[0].message.content;
  const stop = text.slice(9, 15);
  const cut = (await chat({ temperature: 0, stop: [stop] })).choices[0];
  assert.deepEqual([cut.message.content, cut.finish_reason], [text.slice(0, text.indexOf(stop)), 'stop']);
});

test('reasoning has its own channel', async () => {
  const whole = await chat({ reasoning_effort: 'low' });
  assert.equal(whole.choices[0].message.content, '');
  assert.ok(whole.choices[0].message.reasoning_content);
  assert.equal(whole.usage.completion_tokens_details.reasoning_tokens, 24);
  let text = '';
  for await (const chunk of await chat({ reasoning_effort: 'low', stream: true })) text += chunk.choices[0].delta.reasoning_content ?? '';
  assert.equal(text, whole.choices[0].message.reasoning_content);
});

for (const choice of ['required', { type: 'function', function: { name: 'weather' } }]) {
  test(`a call that is ${choice.type ? 'named' : choice}, streamed and not`, async () => {
    for (let seed = 0; seed < 3; seed++) {
      const more = { tools: [weather], tool_choice: choice, parallel_tool_calls: false, max_tokens: 400, seed };
      const whole = (await chat(more)).choices[0];
      if (whole.finish_reason === 'length') continue;
      assert.equal(whole.finish_reason, 'tool_calls');
      const call = whole.message.tool_calls[0];
      const { city, days, ...rest } = JSON.parse(call.function.arguments);
      assert.ok(typeof city === 'string' && days >= 1 && days <= 9);
      assert.deepEqual(rest, {});
      let streamed = '';
      for await (const chunk of await chat({ ...more, stream: true })) streamed += chunk.choices[0].delta.tool_calls?.[0].function.arguments ?? '';
      assert.equal(streamed, call.function.arguments);
      const messages = [...ASK, whole.message, { role: 'tool', tool_call_id: call.id, content: 'Sunny.' }];
      assert.ok((await chat({ messages, tools: [weather] })).choices[0].message.content);
    }
  });
}

test('the helper runs tools', async () => {
  const called = [];
  const runner = client.chat.completions.runTools({
    model: MODEL, messages: ASK, max_tokens: 400, seed: 1, parallel_tool_calls: false, tool_choice: { type: 'function', function: { name: 'verse' } },
    tools: [zodFunction({ name: 'verse', parameters: Verse, function: (v) => (called.push(v), 'done') })],
  });
  await runner.done();
  assert.ok(called.length === 1 && Verse.parse(called[0]));
});

test('answers are parsed into the types of the caller', async () => {
  const got = await finished((seed) => client.chat.completions.parse({ model: MODEL, messages: ASK, max_tokens: 600, seed, response_format: zodResponseFormat(Verse, 'verse') }));
  assert.deepEqual(Verse.parse(got.choices[0].message.parsed), got.choices[0].message.parsed);
  const response = await finished((seed) => client.responses.parse({ model: MODEL, input: 'Speak.', max_output_tokens: 600, seed, text: { format: zodTextFormat(Verse, 'verse') } }));
  assert.ok(Verse.parse(response.output_parsed));
  const any = await finished(async (seed) => JSON.parse((await chat({ seed, max_tokens: 600, response_format: { type: 'json_object' } })).choices[0].message.content));
  assert.equal(typeof any, 'object');
});

test('completions: echo, gap, stream', async () => {
  const ask = (more) => client.completions.create({ model: MODEL, prompt: 'In the beginning', max_tokens: 8, seed: 5, ...more });
  const whole = await ask({ echo: true, logprobs: 1 });
  assert.ok(whole.choices[0].text.startsWith('In the beginning'));
  assert.equal(whole.choices[0].logprobs.tokens.length, whole.choices[0].logprobs.token_logprobs.length);
  assert.ok((await ask({ suffix: ' the earth.' })).usage.prompt_tokens > whole.usage.prompt_tokens);
  let text = '';
  for await (const chunk of await ask({ stream: true, echo: true })) text += chunk.choices[0].text;
  assert.equal(text, whole.choices[0].text);
});

test('a response, its stream and its helper are the same', async () => {
  const whole = await respond();
  assert.ok(whole.output_text && whole.status === 'incomplete');
  let text = '', last;
  for await (const event of await respond({ stream: true })) {
    if (event.type === 'response.output_text.delta') text += event.delta;
    last = event;
  }
  assert.equal(text, whole.output_text);
  assert.equal(last.type, 'response.incomplete');
  const final = await client.responses.stream({ model: MODEL, input: 'Speak of Moses.', max_output_tokens: 24, seed: 5 }).finalResponse();
  assert.equal(final.output_text, text);
});

test('functions of a response', async () => {
  const { function: f } = weather;
  for (let seed = 0; seed < 8; seed++) {
    const got = await respond({ tools: [{ type: 'function', ...f }], tool_choice: 'required', parallel_tool_calls: false, max_output_tokens: 400, seed });
    if (got.status !== 'completed') continue;
    const call = got.output.at(-1);
    assert.equal(call.type, 'function_call');
    assert.ok(JSON.parse(call.arguments).days >= 1);
    const input = [{ role: 'user', content: 'Weather?' }, ...got.output, { type: 'function_call_output', call_id: call.call_id, output: 'Sunny.' }];
    assert.ok((await respond({ input, tools: [{ type: 'function', ...f }] })).output_text);
    return;
  }
  assert.fail('no call ended within its limit');
});

test('models and tokens', async () => {
  assert.deepEqual((await client.models.list()).data.map((m) => m.id), [MODEL]);
  assert.equal((await client.models.retrieve(MODEL)).id, MODEL);
  const { tokens } = await client.post('/tokenize', { body: { prompt: 'light 光' } });
  assert.ok((await client.post('/detokenize', { body: { tokens } })).prompt.endsWith('light 光'));
});

test('errors have types, parameters and codes', async () => {
  const fails = async (promise, kind, want) => {
    const e = await promise.then(() => assert.fail('no error'), (e) => e);
    assert.ok(e instanceof kind, String(e));
    for (const [k, v] of Object.entries(want)) assert.equal(e[k], v);
    assert.ok(e.requestID);
  };
  for (const stream of [false, true]) {
    await fails(chat({ temperature: 9, stream }), OpenAI.BadRequestError, { status: 400, param: 'temperature', type: 'invalid_request_error' });
    await fails(chat({ model: 'gpt-9', stream }), OpenAI.NotFoundError, { status: 404, code: 'model_not_found', param: 'model' });
  }
  await fails(client.models.retrieve('gpt-9'), OpenAI.NotFoundError, { status: 404 });
  const keyed = await serve([], 'secret');
  const other = (apiKey) => new OpenAI({ baseURL: keyed.url + '/v1', apiKey, maxRetries: 0 });
  await fails(other('wrong').models.list(), OpenAI.AuthenticationError, { status: 401, code: 'invalid_api_key' });
  assert.equal((await other('secret').models.list()).data.length, 1);
  await keyed.stop();
});

test('a full server says when to come back, and the client does', async () => {
  const small = await serve(['--max-batch', '1', '--max-queue', '1']);
  const to = (maxRetries) => new OpenAI({ baseURL: small.url + '/v1', apiKey: 'none', maxRetries });
  const long = { model: MODEL, messages: ASK, max_tokens: 8000, ignore_eos: true, stream: true };
  const streams = [await to(0).chat.completions.create(long), await to(0).chat.completions.create(long)];
  const short = { model: MODEL, messages: ASK, max_tokens: 2 };
  const e = await to(0).chat.completions.create(short).then(() => assert.fail('no error'), (e) => e);
  assert.ok(e instanceof OpenAI.InternalServerError && e.status === 503 && Number(e.headers.get('retry-after')) >= 1, String(e));
  const patient = to(5).chat.completions.create(short);
  for (const s of streams) s.controller.abort();
  assert.ok((await patient).choices[0].message.content);
  await small.stop();
});

test('a client that goes away ends its work', async () => {
  const long = { max_tokens: 8000, ignore_eos: true };
  let n = 0;
  for await (const _ of await chat({ ...long, stream: true })) if (++n === 3) break;
  await idle(server.url);
  const abort = new AbortController();
  setTimeout(() => abort.abort(), 300);
  await assert.rejects(chat(long, { signal: abort.signal }), OpenAI.APIUserAbortError);
  await idle(server.url);
});

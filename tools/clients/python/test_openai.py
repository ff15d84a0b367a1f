"""The official OpenAI client for Python. Every answer is also checked against the published schema (published.py)."""

import asyncio
import json
import threading
import time
from typing import Literal, Optional

import openai
import pydantic
import pytest

import served
from served import MODEL

ASK = [{"role": "user", "content": "Speak of Moses."}]


def weather(**more):
    return {"type": "function", "function": {
        "name": "weather", "description": "The weather of a city.", **more,
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                       "required": ["city", "days"], "additionalProperties": False},
    }}  # fmt: skip


def clock():
    return {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


def chat(client, **more):
    return client.chat.completions.create(**{"model": MODEL, "messages": ASK, "max_tokens": 24, "seed": 5, **more})


class Verse(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    book: Literal["Genesis", "Exodus", "Numbers"]
    chapter: int = pydantic.Field(ge=1, le=50)
    words: list[str] = pydantic.Field(max_length=3)
    speaker: Optional[str]


class Tree(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: Literal["cedar", "olive"]
    branches: list["Tree"] = pydantic.Field(max_length=1)


# Chat completions


def test_a_stream_accumulates_to_the_whole(client):
    whole = chat(client).choices[0]
    text, finish, roles = "", None, []
    for chunk in chat(client, stream=True):
        delta = chunk.choices[0].delta
        text += delta.content or ""
        finish = chunk.choices[0].finish_reason or finish
        roles += [delta.role] if delta.role else []
    assert text == whole.message.content != ""
    assert (finish, roles) == (whole.finish_reason, ["assistant"])


def test_the_helper_for_streams_accumulates_to_the_whole(client):
    whole = chat(client, stop=",", max_tokens=400)
    with client.chat.completions.stream(model=MODEL, messages=ASK, max_tokens=400, seed=5, stop=",") as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_usage_comes_in_a_chunk_of_its_own_if_asked(client):
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert [c.usage is not None for c in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 24
    assert chunks[-1].usage.total_tokens == whole.usage.prompt_tokens + 24


def test_choices_have_seeds_of_their_own_and_repeat(client):
    first = [c.message.content for c in chat(client, n=4).choices]
    assert len(set(first)) == 4
    assert first == [c.message.content for c in chat(client, n=4).choices]
    assert first != [c.message.content for c in chat(client, n=4, seed=6).choices]
    streamed = [""] * 4
    for chunk in chat(client, n=4, stream=True):
        for c in chunk.choices:
            streamed[c.index] += c.delta.content or ""
    assert streamed == first


def test_logprobs_are_those_of_the_text(client):
    choice = chat(client, logprobs=True, top_logprobs=3, max_tokens=8).choices[0]
    tokens = choice.logprobs.content
    assert b"".join(bytes(t.bytes) for t in tokens).decode() == choice.message.content
    assert all(t.logprob <= 0 and len(t.top_logprobs) == 3 for t in tokens)
    assert all(t.top_logprobs[0].logprob >= t.top_logprobs[2].logprob for t in tokens)
    streamed = [t for c in chat(client, logprobs=True, top_logprobs=3, max_tokens=8, stream=True) if c.choices[0].logprobs for t in c.choices[0].logprobs.content or []]
    assert streamed == tokens


def test_nothing_of_a_stop_string_is_shown(client):
    text = chat(client, temperature=0).choices[0].message.content
    stop = text[9:15]
    for stops in (stop, ["\x00"] * 15 + [stop]):
        whole = chat(client, temperature=0, stop=stops).choices[0]
        assert (whole.message.content, whole.finish_reason) == (text[: text.index(stop)], "stop")
        streamed = "".join(c.choices[0].delta.content or "" for c in chat(client, temperature=0, stop=stops, stream=True))
        assert streamed == whole.message.content


def test_both_names_of_the_limit_hold(client):
    for name in ("max_tokens", "max_completion_tokens"):
        got = client.chat.completions.create(model=MODEL, messages=ASK, seed=5, **{name: 7})
        assert (got.usage.completion_tokens, got.choices[0].finish_reason) == (7, "length")


def test_sampling_settings_have_an_effect(client):
    plain = chat(client).choices[0].message.content
    for more in ({"temperature": 0.2}, {"top_p": 0.1}, {"frequency_penalty": 2}, {"presence_penalty": 2}, {"extra_body": {"top_k": 1}}, {"extra_body": {"min_p": 0.9}}, {"extra_body": {"repetition_penalty": 2}}):
        assert chat(client, **more).choices[0].message.content != plain, more
    tokens = client.post("/tokenize", cast_to=object, body={"prompt": plain, "add_special_tokens": False})["tokens"]
    assert chat(client, logit_bias={tokens[0]: -100}).choices[0].message.content != plain


# Reasoning


def test_reasoning_has_its_own_channel(client):
    choice = chat(client, reasoning_effort="low").choices[0]
    assert choice.finish_reason == "length" and choice.message.content == ""
    assert choice.message.reasoning_content
    streamed = "".join(getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in chat(client, reasoning_effort="low", stream=True))
    assert streamed == choice.message.reasoning_content


def test_reasoning_cut_by_the_limit_says_so(client):
    got = chat(client, reasoning_effort="max", max_tokens=9)
    assert got.choices[0].finish_reason == "length"
    assert got.usage.completion_tokens_details.reasoning_tokens == got.usage.completion_tokens == 9


def test_reasoning_is_off_if_asked(client):
    for more in ({"reasoning_effort": "none"}, {"extra_body": {"thinking": {"type": "disabled"}}}, {"extra_body": {"chat_template_kwargs": {"thinking": False}}}):
        message = chat(client, **more).choices[0].message
        assert message.content and not hasattr(message, "reasoning_content")


# Tools


@pytest.mark.parametrize("thinking", ["none", "low"])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_calls_are_made_where_they_are_required(client, choice, thinking):
    more = {"tools": [weather(strict=True), clock()], "tool_choice": choice, "reasoning_effort": thinking, "max_tokens": 400, "parallel_tool_calls": False}
    for seed in range(3):
        whole = chat(client, seed=seed, **more).choices[0]
        if whole.finish_reason == "length":
            continue  # reasoning that did not end
        assert whole.finish_reason == "tool_calls" and len(whole.message.tool_calls) == 1
        call = whole.message.tool_calls[0]
        arguments = json.loads(call.function.arguments)
        if choice != "required":
            assert call.function.name == "weather"
        if call.function.name == "weather":
            assert set(arguments) == {"city", "days"} and 1 <= arguments["days"] <= 9


def test_streamed_calls_accumulate_to_valid_json(client):
    more = {"tools": [weather(strict=True), clock()], "tool_choice": "required", "max_tokens": 400}
    for seed in range(4):
        calls, finish = {}, None
        for chunk in chat(client, seed=seed, stream=True, **more):
            finish = chunk.choices[0].finish_reason or finish
            for d in chunk.choices[0].delta.tool_calls or []:
                if d.id:
                    assert d.index == len(calls) and d.type == "function"
                    calls[d.index] = [d.id, d.function.name, ""]
                else:
                    calls[d.index][2] += d.function.arguments
        whole = chat(client, seed=seed, **more).choices[0]
        assert finish == whole.finish_reason
        assert [(n, a) for _, n, a in calls.values()] == [(c.function.name, c.function.arguments) for c in whole.message.tool_calls]
        if finish == "tool_calls":
            assert all(isinstance(json.loads(a), dict) for _, _, a in calls.values())


def test_a_model_that_may_call_answers_or_calls(client):
    for choice in ("auto", "none"):
        got = chat(client, tools=[weather()], tool_choice=choice).choices[0]
        assert got.message.content and not got.message.tool_calls


def test_a_result_is_read_and_answered(client):
    call = next(c for s in range(9) for c in [chat(client, seed=s, tools=[weather(strict=True)], tool_choice="required", max_tokens=400, parallel_tool_calls=False).choices[0]] if c.finish_reason == "tool_calls").message
    messages = ASK + [call, {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "Sunny."}]
    got = chat(client, messages=messages, tools=[weather(strict=True)])
    assert got.choices[0].message.content
    assert got.usage.prompt_tokens > 60


def test_calls_are_parsed_into_the_callers_types(client):
    tool = openai.pydantic_function_tool(Verse)
    got = finished(lambda seed: client.chat.completions.parse(model=MODEL, messages=ASK, tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=900, seed=seed))
    assert isinstance(got.choices[0].message.tool_calls[0].function.parsed_arguments, Verse)


# JSON


def finished(ask):
    """The first answer that its limit does not cut off."""
    for seed in range(8):
        try:
            return ask(seed)
        except (openai.LengthFinishReasonError, pydantic.ValidationError):
            continue
    raise AssertionError("no answer ended within its limit")


@pytest.mark.parametrize("kind", [Verse, Tree])
def test_an_answer_is_parsed_into_the_callers_type(client, kind):
    got = finished(lambda seed: client.chat.completions.parse(model=MODEL, messages=ASK, response_format=kind, max_tokens=900, seed=seed))
    assert isinstance(got.choices[0].message.parsed, kind)


def test_a_stream_is_parsed_into_the_callers_type(client):
    def ask(seed):
        with client.chat.completions.stream(model=MODEL, messages=ASK, response_format=Verse, max_tokens=900, seed=seed) as stream:
            return stream.get_final_completion()

    assert isinstance(finished(ask).choices[0].message.parsed, Verse)


def test_an_answer_cut_by_its_limit_is_no_answer(client):
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model=MODEL, messages=ASK, response_format=Verse, max_tokens=3)


def test_any_object(client):
    for seed in range(5):
        got = chat(client, seed=seed, response_format={"type": "json_object"}, max_tokens=400).choices[0]
        if got.finish_reason == "stop":
            assert isinstance(json.loads(got.message.content), dict)


def test_a_schema_begins_after_the_reasoning(client):
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}}}
    ended = 0
    for seed in range(6):
        got = chat(client, seed=seed, response_format=form, reasoning_effort="low", max_tokens=700).choices[0]
        assert got.message.reasoning_content
        if got.finish_reason == "stop":
            assert json.loads(got.message.content)["n"] in (1, 2)
            ended += 1
        else:
            assert got.message.content == ""
    print(f"{ended} of 6 ended")


# Completions


def complete(client, **more):
    return client.completions.create(**{"model": MODEL, "prompt": "In the beginning", "max_tokens": 12, "seed": 5, **more})


def test_a_text_is_continued(client):
    whole = complete(client)
    assert whole.choices[0].text and whole.usage.completion_tokens == 12
    assert "".join(c.choices[0].text for c in complete(client, stream=True)) == whole.choices[0].text


def test_echo_scores_the_prompt(client):
    choice = complete(client, echo=True, logprobs=2, max_tokens=3).choices[0]
    lists = choice.logprobs
    assert choice.text.startswith("In the beginning")
    assert len(lists.tokens) == len(lists.token_logprobs) == len(lists.text_offset) == len(lists.top_logprobs)
    assert lists.token_logprobs[0] is None and all(p <= 0 for p in lists.token_logprobs[1:])
    only = complete(client, echo=True, logprobs=0, max_tokens=0)
    assert (only.choices[0].text, only.usage.completion_tokens) == ("In the beginning", 0)


def test_a_gap_is_filled(client):
    plain, gap = complete(client, temperature=0), complete(client, temperature=0, suffix=" and the earth.")
    assert gap.choices[0].text != plain.choices[0].text
    assert gap.usage.prompt_tokens > plain.usage.prompt_tokens


def test_several_prompts_and_choices(client):
    got = complete(client, prompt=["Moses", "Aaron"], n=2)
    assert [c.index for c in got.choices] == [0, 1, 2, 3] and len({c.text for c in got.choices}) == 4


def test_stops_hold_for_prompts_of_token_ids(client):
    ids = client.post("/tokenize", cast_to=object, body={"prompt": "In the beginning"})["tokens"]
    text = complete(client, prompt=ids, temperature=0).choices[0].text
    assert text == complete(client, temperature=0).choices[0].text
    stop = text[4:9]
    assert complete(client, prompt=ids, temperature=0, stop=stop).choices[0].text == text[: text.index(stop)]


# Responses


def respond(client, **more):
    return client.responses.create(**{"model": MODEL, "input": "Speak of Moses.", "max_output_tokens": 24, "extra_body": {"seed": 5}, **more})


def test_a_response_and_its_stream_are_the_same(client):
    whole = respond(client, instructions="Be brief.")
    assert whole.output_text and whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"
    assert whole.instructions == "Be brief." and whole.usage.output_tokens == 24
    events = list(respond(client, instructions="Be brief.", stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert events[-1].type == "response.incomplete" and events[-1].response.output_text == whole.output_text


def test_the_helper_for_streams_of_responses(client):
    with client.responses.stream(model=MODEL, input="Speak of Moses.", max_output_tokens=24, extra_body={"seed": 5}) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
    assert text == respond(client).output_text


def test_reasoning_is_an_item(client):
    got = respond(client, reasoning={"effort": "low"})
    assert [i.type for i in got.output] == ["reasoning"] and got.output[0].content[0].text
    assert got.usage.output_tokens_details.reasoning_tokens == 24
    events = [e.delta for e in respond(client, reasoning={"effort": "low"}, stream=True) if e.type == "response.reasoning_text.delta"]
    assert "".join(events) == got.output[0].content[0].text


def test_a_response_is_parsed_into_the_callers_type(client):
    got = finished(lambda seed: client.responses.parse(model=MODEL, input="Speak.", text_format=Verse, max_output_tokens=900, extra_body={"seed": seed}))
    assert isinstance(got.output_parsed, Verse)


def test_functions_of_a_response(client):
    tool = {"type": "function", "strict": True, **{k: v for k, v in weather()["function"].items()}}
    for seed in range(8):
        got = respond(client, tools=[tool], tool_choice="required", parallel_tool_calls=False, max_output_tokens=400, extra_body={"seed": seed})
        if got.status == "completed":
            break
    call = got.output[-1]
    assert call.type == "function_call" and 1 <= json.loads(call.arguments)["days"] <= 9
    events = list(respond(client, tools=[tool], tool_choice={"type": "function", "name": "weather"}, parallel_tool_calls=False, max_output_tokens=400, extra_body={"seed": seed}, stream=True))
    done = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert len(done) == 1 and done[0].arguments == "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    again = respond(client, tools=[tool], input=[{"role": "user", "content": "Weather?"}, *got.output, {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}])
    assert again.output_text


# Models, tokens


def test_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == [MODEL]
    assert client.models.retrieve(MODEL).capabilities["tools"] is True


def test_tokenise_and_back(client):
    text = "Let there be light: 光 😀"
    got = client.post("/tokenize", cast_to=object, body={"prompt": text, "add_special_tokens": False})
    assert got["count"] == len(got["tokens"]) and client.post("/detokenize", cast_to=object, body={"tokens": got["tokens"]})["prompt"] == text
    messages = client.post("/tokenize", cast_to=object, body={"messages": ASK})
    assert messages["count"] == chat(client).usage.prompt_tokens


# Errors


@pytest.mark.parametrize("more, param, says", [
    ({"temperature": 9}, "temperature", "from 0 to 5"),
    ({"n": 0}, "n", "from 1"),
    ({"stop": ["x"] * 17}, "stop", "at most 16"),
    ({"top_logprobs": 2}, "top_logprobs", "needs logprobs"),
    ({"messages": []}, "messages", "at least one"),
    ({"reasoning_effort": "hard"}, "reasoning_effort", "an integer from 1 to 100"),
    ({"extra_body": {"reasoning_effort": True}}, "reasoning_effort", "not true"),
    ({"tool_choice": "required"}, "tool_choice", "no tools"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}}}, "response_format.json_schema.schema", "not supported"),
    ({"messages": [{"role": "user", "content": "and " * 20000}]}, "messages", "context"),
])  # fmt: skip
def test_a_bad_request_names_its_parameter(client, more, param, says):
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as e:
            chat(client, stream=stream, **more)
        assert e.value.param == param and says in e.value.message and e.value.type == "invalid_request_error"
        assert e.value.request_id


def test_another_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as e:
        chat(client, model="gpt-9")
    assert e.value.code == "model_not_found" and e.value.param == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_a_key_is_needed_where_there_is_one():
    with served.serve(key="secret") as url:
        with pytest.raises(openai.AuthenticationError) as e:
            chat(served.openai_client(url, key="wrong"))
        assert e.value.code == "invalid_api_key"
        assert chat(served.openai_client(url, key="secret")).choices[0].message.content


def test_a_full_server_says_when_to_come_back_and_the_client_does():
    with served.serve("--max-batch", "1", "--max-queue", "1") as url:
        client = served.openai_client(url)
        first = chat(client, max_tokens=8000, stream=True, logit_bias={}, extra_body={"ignore_eos": True})
        next(iter(first))
        second = threading.Thread(target=lambda: chat(served.openai_client(url), max_tokens=2))
        second.start()
        while served.load(url)[1] == 0:
            time.sleep(0.01)
        for stream in (False, True):
            with pytest.raises(openai.InternalServerError) as e:
                chat(client, stream=stream)
            assert e.value.status_code == 503 and int(e.value.response.headers["retry-after"]) >= 1
        threading.Timer(0.5, first.close).start()
        assert chat(served.openai_client(url, max_retries=5), max_tokens=2).choices[0].message.content
        second.join()


def test_one_key_cannot_take_all_places():
    with served.serve("--max-per-key", "1", key="greedy") as url:
        client = served.openai_client(url, key="greedy")
        stream = chat(client, max_tokens=8000, stream=True, extra_body={"ignore_eos": True})
        with pytest.raises(openai.RateLimitError) as e:
            chat(client)
        assert e.value.type == "rate_limit_error" and int(e.value.response.headers["retry-after"]) >= 1
        stream.close()
        assert chat(served.openai_client(url, key="greedy", max_retries=5)).choices[0].message.content


def test_the_asynchronous_client_gets_what_lone_requests_get(client, url):
    async def together():
        async with openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", timeout=60) as c:
            async def one(seed):
                text = ""
                async for chunk in await chat(c, seed=seed, stream=True):
                    text += chunk.choices[0].delta.content or ""
                return text
            return await asyncio.gather(*(one(seed) for seed in range(12)))

    assert asyncio.run(together()) == [chat(client, seed=seed).choices[0].message.content for seed in range(12)]


# Cancellation


@pytest.mark.parametrize("start", ["chat", "completions", "responses"])
def test_a_client_that_goes_away_ends_its_work(client, url, start):
    ended = served.metric(url, "cedrun_generations_total")
    more = {"stream": True, "extra_body": {"ignore_eos": True}}
    stream = {
        "chat": lambda: chat(client, max_tokens=8000, **more),
        "completions": lambda: complete(client, max_tokens=8000, **more),
        "responses": lambda: respond(client, max_output_tokens=8000, **more),
    }[start]()
    for _, _ in zip(range(3), stream):
        pass
    assert served.load(url)[0] == 1
    stream.close()
    deadline = time.monotonic() + 10
    while served.load(url) != (0, 0):
        assert time.monotonic() < deadline, "the request still runs"
        time.sleep(0.01)
    assert served.metric(url, "cedrun_generations_total") == ended + 1


def test_a_client_out_of_patience_ends_its_work(client, url):
    with pytest.raises(openai.APITimeoutError):
        chat(client.with_options(timeout=0.3), max_tokens=8000, extra_body={"ignore_eos": True})
    deadline = time.monotonic() + 10
    while served.load(url) != (0, 0):
        assert time.monotonic() < deadline, "the request still runs"
        time.sleep(0.01)


# Cache


def test_a_conversation_continues_on_its_cache(client):
    first = chat(client, stop=["\x00"], extra_body={"cache_salt": "python"})
    answer = first.choices[0].message.content
    messages = ASK + [{"role": "assistant", "content": answer}, {"role": "user", "content": "And of Aaron."}]
    warm, cold = chat(client, messages=messages, extra_body={"cache_salt": "python"}), chat(client, messages=messages, extra_body={"cache": "off"})
    assert warm.choices[0].message.content == cold.choices[0].message.content
    assert cold.usage.prompt_tokens_details.cached_tokens == 0

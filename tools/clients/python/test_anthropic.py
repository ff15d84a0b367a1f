"""The official Anthropic client for Python. Every answer is also checked against the published schema (published.py)."""

import time
from typing import Literal

import anthropic
import pydantic
import pytest

import served
from served import MODEL

ASK = [{"role": "user", "content": "Speak of Moses."}]
WEATHER = {
    "name": "weather", "description": "The weather of a city.", "strict": True,
    "input_schema": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
                     "required": ["city", "days"], "additionalProperties": False},
}  # fmt: skip


def say(claude, **more):
    return claude.messages.create(**{"model": MODEL, "messages": ASK, "max_tokens": 24, "extra_body": {"seed": 5}, **more})


def text(message):
    return "".join(b.text for b in message.content if b.type == "text")


def test_a_stream_accumulates_to_the_whole(claude):
    whole = say(claude)
    assert text(whole) and whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 24
    with claude.messages.stream(model=MODEL, messages=ASK, max_tokens=24, extra_body={"seed": 5}) as stream:
        pieces = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert pieces == text(final) == text(whole)
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, 24)
    kinds = [e.type for e in say(claude, stream=True)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]


def test_every_name_of_the_family_is_this_model(claude):
    assert say(claude, model="claude-any").model == MODEL


def test_thinking_is_a_block_of_its_own(claude):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    whole = say(claude, thinking=thinking)
    assert [b.type for b in whole.content] == ["thinking"] and whole.content[0].thinking and whole.content[0].signature
    with claude.messages.stream(model=MODEL, messages=ASK, max_tokens=24, thinking=thinking, extra_body={"seed": 5}) as stream:
        final = stream.get_final_message()
    assert final.content[0].thinking == whole.content[0].thinking and final.content[0].signature
    assert [b.type for b in say(claude, thinking={"type": "disabled"}).content] == ["text"]
    assert "think>" not in text(say(claude))


def test_nothing_of_a_stop_sequence_is_shown(claude):
    first = text(say(claude))
    stop = first[9:15]
    got = say(claude, stop_sequences=["\x00", stop])
    assert (text(got), got.stop_reason, got.stop_sequence) == (first[: first.index(stop)], "stop_sequence", stop)
    with claude.messages.stream(model=MODEL, messages=ASK, max_tokens=24, stop_sequences=[stop], extra_body={"seed": 5}) as stream:
        assert "".join(stream.text_stream) == first[: first.index(stop)]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "weather"}])
def test_calls_are_made_where_they_are_required(claude, choice):
    choice = {**choice, "disable_parallel_tool_use": True}
    for seed in range(3):
        more = {"tools": [WEATHER], "tool_choice": choice, "max_tokens": 600, "extra_body": {"seed": seed}}
        whole = say(claude, **more)
        if whole.stop_reason == "max_tokens":
            continue
        assert whole.stop_reason == "tool_use"
        call = next(b for b in whole.content if b.type == "tool_use")
        assert call.name == "weather" and set(call.input) == {"city", "days"} and 1 <= call.input["days"] <= 9
        with claude.messages.stream(model=MODEL, messages=ASK, **more) as stream:
            final = stream.get_final_message()
        assert next(b for b in final.content if b.type == "tool_use").input == call.input
        again = say(claude, tools=[WEATHER], messages=ASK + [
            {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in whole.content]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Sunny."}]},
        ])  # fmt: skip
        assert text(again) or again.stop_reason == "tool_use"


def test_a_model_that_may_call_answers_or_calls(claude):
    for choice in ({"type": "auto"}, {"type": "none"}):
        assert [b.type for b in say(claude, tools=[WEATHER], tool_choice=choice).content] == ["text"]


class Verse(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    book: Literal["Genesis", "Exodus"]
    chapter: int


def test_a_message_is_parsed_into_the_callers_type(claude):
    for seed in range(8):
        try:
            got = claude.messages.parse(model=MODEL, messages=ASK, max_tokens=600, output_format=Verse, extra_body={"seed": seed})
        except pydantic.ValidationError:
            continue  # cut off by its limit
        if got.stop_reason == "end_turn":
            break
    assert isinstance(got.parsed_output, Verse)


def test_system_and_blocks_are_read(claude):
    plain = say(claude)
    more = say(claude, system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}], messages=[{"role": "user", "content": [{"type": "text", "text": "Speak of Moses."}]}])
    assert more.usage.input_tokens + more.usage.cache_read_input_tokens > plain.usage.input_tokens + plain.usage.cache_read_input_tokens


def test_an_answer_that_was_begun_is_continued(claude):
    got = say(claude, messages=ASK + [{"role": "assistant", "content": "And Moses"}])
    assert text(got) and not text(got).startswith("And Moses")


def test_tokens_are_counted_as_they_are_charged(claude):
    for more in ({}, {"system": "Be brief."}, {"tools": [WEATHER]}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}):
        counted = claude.messages.count_tokens(model=MODEL, messages=ASK, **more).input_tokens
        usage = say(claude, **more).usage
        assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_models(claude):
    assert [m.id for m in claude.models.list().data] == [MODEL]
    model = claude.models.retrieve(MODEL)
    assert model.display_name == MODEL and model.max_input_tokens == 8192
    assert model.lifecycle == "active"


@pytest.mark.parametrize("more, says", [
    ({"extra_body": {"temperature": 9}}, "temperature must be from 0 to 5"),
    ({"messages": []}, "messages is missing or empty"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"tool_choice": {"type": "any"}}, "there are no tools"),
    ({"stop_sequences": ["x"] * 17}, "at most 16"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}]}]}, "reads text only"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "run by a server"),
])  # fmt: skip
def test_a_bad_request_is_refused(claude, more, says):
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError) as e:
            say(claude, stream=stream, **more)
        assert e.value.body["error"]["type"] == "invalid_request_error" and says in e.value.message and e.value.request_id


def test_another_model_is_not_found(claude):
    with pytest.raises(anthropic.NotFoundError):
        say(claude, model="gpt-9")
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("gpt-9")


def test_a_key_is_needed_where_there_is_one():
    with served.serve(key="secret") as url:
        with pytest.raises(anthropic.AuthenticationError) as e:
            say(served.anthropic_client(url, key="wrong"))
        assert e.value.body["error"]["type"] == "authentication_error"
        assert text(say(served.anthropic_client(url, key="secret")))


def test_a_full_server_is_overloaded():
    with served.serve("--max-batch", "1", "--max-queue", "1") as url:
        claude = served.anthropic_client(url)
        streams = [say(claude, stream=True, max_tokens=8000, extra_body={"ignore_eos": True}) for _ in range(2)]
        with pytest.raises(anthropic.APIStatusError) as e:
            say(claude)
        assert e.value.status_code == 503 and e.value.body["error"]["type"] == "overloaded_error"
        assert int(e.value.response.headers["retry-after"]) >= 1
        for stream in streams:
            stream.close()
        assert text(say(served.anthropic_client(url, max_retries=5)))


def test_one_key_cannot_take_all_places():
    with served.serve("--max-per-key", "1", key="greedy") as url:
        claude = served.anthropic_client(url, key="greedy")
        stream = say(claude, stream=True, max_tokens=8000, extra_body={"ignore_eos": True})
        with pytest.raises(anthropic.RateLimitError) as e:
            say(claude)
        assert e.value.body["error"]["type"] == "rate_limit_error" and int(e.value.response.headers["retry-after"]) >= 1
        stream.close()


def test_a_client_that_goes_away_ends_its_work(claude, url):
    stream = say(claude, stream=True, max_tokens=8000, extra_body={"ignore_eos": True})
    for _, _ in zip(range(5), stream):
        pass
    assert served.load(url)[0] == 1
    stream.close()
    deadline = time.monotonic() + 10
    while served.load(url) != (0, 0):
        assert time.monotonic() < deadline, "the request still runs"
        time.sleep(0.01)

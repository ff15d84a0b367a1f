"""Constrained answers, judged by a validator that has nothing to do with the one that made them (jsonschema)."""

import json

import jsonschema
import openai
import pytest

from served import MODEL

SEEDS, CHOICES, LIMIT = 2, 8, 300


def o(required=None, **properties):
    """An object that has exactly these properties."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


def text(most=12, **more):
    return {"type": "string", "maxLength": most, **more}


def whole(low, high, **more):
    return {"type": "integer", "minimum": low, "maximum": high, **more}


SCHEMAS = {
    # values
    "a text": text(),
    "a text of at least": text(9, minLength=7),
    "a boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "an integer": whole(-3, 12),
    "an integer above": {"type": "integer", "exclusiveMinimum": 7, "exclusiveMaximum": 10},
    "a large integer": whole(999, 100_000_000_001),
    "a negative integer": whole(-120, -7),
    "a number": {"type": "number", "minimum": 0.5, "maximum": 2.25},
    "a number below": {"type": "number", "exclusiveMinimum": -1, "exclusiveMaximum": 0},
    "a multiple": whole(0, 1000, multipleOf=25),
    "one of two types": {"type": ["integer", "null"], "minimum": 0, "maximum": 9},
    "nullable": {"type": "string", "enum": ["a"], "nullable": False},
    "an enum of all kinds": {"enum": ["red", 7, None, True, [1, "x"], {"k": 0.5}]},
    "a constant": {"const": {"kind": "point", "at": [1, 2]}},
    # patterns and formats
    "a pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"},
    "a pattern of alternatives": {"type": "string", "pattern": "^(north|south)( (east|west))?$"},
    "a pattern of other alphabets": {"type": "string", "pattern": "^[α-ω]{1,4}[日月]$"},
    "a pattern inside a text": {"type": "string", "pattern": "^[a-z]*ss[a-z]*$", "maxLength": 10},
    "a date": {"type": "string", "format": "date"},
    "a time": {"type": "string", "format": "time"},
    "a date and time": {"type": "string", "format": "date-time"},
    "an address of a computer": {"type": "string", "format": "ipv4"},
    "a newer address": {"type": "string", "format": "ipv6"},
    "a uuid": {"type": "string", "format": "uuid"},
    "an email": {"type": "string", "format": "email"},
    "a host": {"type": "string", "format": "hostname"},
    "a duration": {"type": "string", "format": "duration"},
    "a uri": {"type": "string", "format": "uri"},
    "a uri of limited length": {"type": "string", "format": "uri", "minLength": 1, "maxLength": 40},
    # arrays
    "an array": {"type": "array", "items": whole(0, 9), "minItems": 2, "maxItems": 5},
    "an empty array": {"type": "array", "items": text(), "maxItems": 0},
    "a tuple": {"type": "array", "prefixItems": [text(5), whole(0, 5), {"type": "boolean"}], "items": False, "minItems": 3},
    "a tuple that goes on": {"type": "array", "prefixItems": [{"const": "head"}], "items": whole(1, 3), "minItems": 1, "maxItems": 4},
    "a matrix": {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "array", "minItems": 2, "maxItems": 2, "items": whole(0, 1)}},
    # objects
    "an object": o(name=text(), age=whole(0, 120)),
    "optional properties": o(["b"], a=whole(0, 9), b={"type": "boolean"}, c={"type": "null"}),
    "no property": o(),
    "a map": {"type": "object", "additionalProperties": whole(0, 9), "minProperties": 1, "maxProperties": 2},
    "a map of maps": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 1}, "maxProperties": 1},
    "keys of other alphabets": o(**{"größe": whole(0, 9), "名前": text(4), "emoji 😀": {"type": "boolean"}, 'a "quoted" \\ key': {"const": 1}}),
    "nested": o(a=o(b=o(c=o(d={"type": "array", "items": o(e=whole(0, 3)), "maxItems": 2})))),
    # combinations
    "anyOf": {"anyOf": [o(kind={"const": "circle"}, r=whole(1, 9)), o(kind={"const": "square"}, side=whole(1, 9))]},
    "anyOf of types": {"anyOf": [{"type": "boolean"}, whole(5, 6), text(3)]},
    "oneOf": {"oneOf": [{"type": "null"}, o(x=whole(0, 1))]},
    "allOf": {"allOf": [{"type": "integer"}, {"minimum": 10}, {"maximum": 20}]},
    "a definition": {"$defs": {"point": o(x=whole(0, 9), y=whole(0, 9))}, **o(a={"$ref": "#/$defs/point"}, b={"$ref": "#/$defs/point"})},
    "a list that is recursive": {"$defs": {"node": o(v=whole(0, 1), next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]})}, "$ref": "#/$defs/node"},
    "a tree that is recursive": {"type": "object", "properties": {"n": {"enum": ["a", "b"]}, "sub": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}}, "required": ["n", "sub"], "additionalProperties": False},
    "a reference to a property": {**o(a=whole(3, 5), b={"$ref": "#/properties/a"})},
}  # fmt: skip

# Texts and names without a limit: a model of this size seldom ends them.
ENDLESS = {"a uri", "a map", "a map of maps"}


def answers(client, schema, **more):
    for seed in range(SEEDS):
        got = client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Speak."}], seed=seed, n=CHOICES, max_tokens=LIMIT, temperature=1, top_p=1,
            response_format={"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}, **more,
        )  # fmt: skip
        yield from got.choices


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_answer_that_ends_has_its_schema(client, name):
    schema = SCHEMAS[name]
    judge = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    judge.check_schema(schema)
    ended = []
    for choice in answers(client, schema):
        if choice.finish_reason == "stop":
            value = json.loads(choice.message.content)
            judge.validate(value)
            ended.append(json.dumps(value))
    assert name in ENDLESS or len(ended) >= SEEDS * CHOICES // 2, f"only {len(ended)} answers ended"


def test_the_table_is_judged_by_formats_too():
    known = jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers
    used = {s["format"] for s in SCHEMAS.values() if "format" in s}
    assert used <= set(known), used - set(known)


@pytest.mark.parametrize("keyword, value", [
    ("not", {}), ("if", {}), ("uniqueItems", True), ("contains", {}), ("patternProperties", {"a": {}}), ("propertyNames", {}),
    ("maxContains", 1), ("dependentRequired", {"a": ["b"]}), ("unevaluatedProperties", False), ("format", "idn-email"), ("$ref", "https://example.com/x"),
])  # fmt: skip
def test_a_keyword_that_is_not_supported_is_named(client, keyword, value):
    with pytest.raises(openai.BadRequestError) as e:
        list(answers(client, {"type": "object", "properties": {"a": {keyword: value}}}))
    assert e.value.param == "response_format.json_schema.schema"
    assert keyword in e.value.message or str(value) in e.value.message, e.value.message

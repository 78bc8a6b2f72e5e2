"""Arguments as models write them."""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import pytest

from services.runtime.formats.json_schema import compile_schema, describe_violations
from services.tools.errors import ToolFailed
from services.tools.toolkit.tool import check_schema, parse_arguments
from tests.support.shapes import fan_out

SCHEMA = compile_schema(
    json.dumps(
        {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "list": {"type": "array", "items": {"enum": ["a", "b"]}},
                "text": {"type": "string", "pattern": "^(a+)+$"},
            },
            "required": ["n"],
            "additionalProperties": False,
        }
    )
)


def test_integers_of_any_size_survive() -> None:
    assert parse_arguments('{"n": 123456789012345678901234567890}', [SCHEMA]) == {"n": 123456789012345678901234567890}


@pytest.mark.parametrize(
    ("text", "path", "rule"),
    [
        ('{"n": "1"}', "$.n", "type"),
        ('{"n": 1.5}', "$.n", "type"),
        ("", "$", "required"),
        ('{"n": 1, "z": 2}', "$", "additionalProperties"),
        ('{"n": 1, "list": ["a", "c"]}', "$.list[1]", "enum"),
        ('{"n": 1, "text": "' + "a" * 100 + 'b"}', "$.text", "pattern"),
    ],
)
def test_a_violation_names_path_and_rule(text: str, path: str, rule: str) -> None:
    with pytest.raises(ToolFailed) as caught:
        parse_arguments(text, [SCHEMA])
    assert f" {path}: " in str(caught.value)
    assert f"(rule: {rule})" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        "7",
        "[" * 100_000,
        '{"a":' * 64 + "{}" + "}" * 64,
        '{"n": NaN}',
        '{"n": 1, "text": "\\ud800"}',
        '{"n": ' + "9" * 5000 + "}",
        " " * 5_000_000,
        "\x00",
    ],
)
def test_arguments_that_are_no_json_object_fail_the_call(text: str) -> None:
    with pytest.raises(ToolFailed, match="invalid arguments"):
        parse_arguments(text, [SCHEMA])


@pytest.mark.parametrize(
    "schema",
    ['{"type": "nonsense"}', '{"$ref": "http://127.0.0.1:9/x"}', '{"required": true}', "7", "[" * 80 + "]" * 80],
)
def test_a_schema_invalid_in_every_draft_is_refused(schema: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_schema(schema)


LOOK_AHEAD = {"pattern": "^(?=x)y"}


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"properties": {"a": LOOK_AHEAD | {"type": "string"}}}, {"a": "z"}, {"a": 1}),
        ({"patternProperties": {"(?!b)c": {}}, "additionalProperties": False, "minProperties": 1}, {"d": 1}, {}),
        ({"not": LOOK_AHEAD, "type": "string"}, "z", 1),
        ({"if": {"properties": {"a": LOOK_AHEAD}}, "then": False, "type": "object"}, {"a": "z"}, 1),
        ({"oneOf": [{"type": "string"}, LOOK_AHEAD], "maxLength": 1}, "z", "zz"),
        ({"contains": LOOK_AHEAD, "minContains": 2, "maxItems": 3}, ["x"], [1, 1, 1, 1]),
        ({"anyOf": [LOOK_AHEAD | {"type": "string"}, {"type": "null"}]}, "z", 1),
        ({"not": {"$ref": "#/$defs/a"}, "$defs": {"a": LOOK_AHEAD}, "type": "string"}, "z", 1),
        ({"allOf": [{"properties": {"not": LOOK_AHEAD}}], "unevaluatedProperties": False}, {"not": "z", "b": 1}, None),
        ({"items": [{"type": "string"}], "additionalItems": False}, ["x"], ["x", 1]),
        ({"properties": {"a": {"type": "integer", "required": True}}}, {"a": 1}, {"a": "x"}),
        (
            {"properties": {"a": {"type": "any"}, "b": "text"}, "additionalProperties": False},
            {"a": 1, "b": 1},
            {"c": 1},
        ),
        ({"properties": {"0": {"type": "any"}, "01": {"type": "string"}}}, {"0": 1}, {"01": 1}),
        ({"prefixItems": "text", "items": False, "minItems": 1}, [1], []),
        ({"properties": {"a": {"$ref": "https://example.org/a"}}, "required": ["a"]}, {"a": 1}, {}),
        ({"properties": {"a": {"$ref": "#/$defs/nowhere"}}, "required": ["a"]}, {"a": 1}, {}),
        ({"type": "integer", "maximum": 3, "exclusiveMaximum": True}, 2, 3),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}, {"type": "string"}]}, [1, "x"], [1, 1]),
        ({"anyOf": [LOOK_AHEAD for _ in range(200)], "type": "string"}, 1, None),
        ("text", 1, None),
    ],
)
def test_an_inapplicable_part_of_a_schema_is_ignored_and_the_rest_checked(
    schema: Any, fits: Any, does_not: Any
) -> None:
    validator = compile_schema(json.dumps(schema))
    assert describe_violations(fits, validator) == ""
    assert does_not is None or describe_violations(does_not, validator) != ""


CHAIN = {"$ref": "#/$defs/0", "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(9000)}}


@pytest.mark.parametrize(
    "schema",
    [
        fan_out(12, "allOf"),
        fan_out(12, "anyOf"),
        CHAIN,
        {"properties": {str(n): {"pattern": "a{9}"} for n in range(999)}},
    ],
)
def test_a_schema_too_large_with_its_references_expanded_is_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match="more than 10000 parts"):
        check_schema(json.dumps(schema))
    assert describe_violations(3, compile_schema(json.dumps(schema))) == "", "a tool's is not checked"


def nest(depth: int) -> Any:
    value: Any = 3
    for _ in range(depth):
        value = {"next": [value]}
    return value


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"items": fan_out(4, "allOf")} | fan_out(4, "allOf"), [3] * 50_000, "too large to be checked"),
        ({"items": fan_out(3, "allOf"), "$defs": fan_out(3, "allOf")["$defs"]}, [3] * 9000, r"^\$\[0\]: "),
        ({"items": fan_out(3, "oneOf"), "$defs": fan_out(3, "oneOf")["$defs"]}, [{}] * 900, "too large to say where"),
        ({"anyOf": [{"additionalProperties": {"items": {"$ref": "#"}}}] * 8}, nest(31), "too large to be checked"),
        ({"properties": {"next": {"items": {"$dynamicRef": "#it"}}}, "$dynamicAnchor": "it"}, nest(31), "^$"),
        ({"items": {"allOf": [{"pattern": "^(a|b)+$"}] * 99}}, ["a" * 10_000] * 1000, "too large to be checked"),
    ],
)
def test_a_too_expensive_check_is_refused(schema: Any, value: Any, problem: str) -> None:
    assert re.search(problem, describe_violations(value, compile_schema(json.dumps(schema))))


WIDE = "([ab]?){900}([ab]?){900}[^ab]"
AB = "".join(random.Random(7).choices("ab", k=60_000))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": WIDE}, AB),
        ({"properties": {"a": {"items": {"anyOf": [{"pattern": WIDE}]}}}}, {"a": [AB]}),
        ({"additionalProperties": {"$ref": "#/$defs/a"}, "$defs": {"a": {"pattern": WIDE}}}, {"a": AB}),
        ({"patternProperties": {WIDE: {}}}, {AB: 1}),
        ({"propertyNames": {"pattern": WIDE}}, {AB: 1}),
        ({"items": {"pattern": WIDE}}, [AB[:300]] * 200),
    ],
)
def test_a_large_pattern_on_a_large_value_is_not_checked(schema: Any, value: Any) -> None:
    compiled = compile_schema(json.dumps(schema))
    began_s = time.process_time()
    assert describe_violations(value, compiled) == "$: too large to be checked against its schema"
    assert time.process_time() - began_s < 0.5
    short: Any = [] if isinstance(value, list) else "" if isinstance(value, str) else {}
    assert "too large" not in describe_violations(short, compiled)


@pytest.mark.parametrize(
    "patterns",
    [
        [rf"\p{{L}}{{1,{20 + n}}}" for n in range(90)],
        [f"(([ab]?){{30}}){{30}}{n}" for n in range(90)] + ["(?=a)b"] * 10,
        [f"(([ab]?){{50}}){{{60 + n % 30}}}{n}" for n in range(90)],
    ],
)
def test_pattern_compilation_is_bounded(patterns: list[str]) -> None:
    began_s = time.process_time()
    schema = {"properties": {str(n): {"pattern": pattern, "type": "string"} for n, pattern in enumerate(patterns)}}
    compiled = compile_schema(json.dumps(schema))
    assert time.process_time() - began_s < 1
    assert compiled.problem == ""
    assert describe_violations({"0": 1}, compiled) != "", "the rest is checked"


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (r"^[\u4e00-\u9fa5]+$", "\u6c34" * 20_000, "a"),
        (r"^[A-Za-z0-9+/]*={0,2}$", "QUJD" * 100_000, "-"),
        (r"\S", " " * 400_000 + "a", " "),
        (r"^.{1,255}$", "a" * 255, ""),
    ],
)
def test_ordinary_patterns_are_checked_on_long_texts(pattern: str, fits: str, does_not: str) -> None:
    compiled = compile_schema(json.dumps({"pattern": pattern}))
    assert describe_violations(fits, compiled) == ""
    assert "(rule: pattern)" in describe_violations(does_not, compiled)


def test_a_large_invalid_value_reports_its_first_violation() -> None:
    text = json.dumps({"n": 1, "list": [1] * 300_000})
    with pytest.raises(ToolFailed, match=r"invalid arguments: \$\.list\[0\]: .* \(rule: enum\)$"):
        parse_arguments(text, [SCHEMA])


def test_a_small_invalid_value_reports_all_violations() -> None:
    with pytest.raises(ToolFailed) as caught:
        parse_arguments('{"n": "1", "list": ["a", "c"], "z": 1}', [SCHEMA])
    assert [rule in str(caught.value) for rule in ("type", "enum", "additionalProperties")] == [True] * 3

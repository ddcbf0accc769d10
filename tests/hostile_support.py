"""What a hostile model, tool, file or name can hand over, as hypothesis strategies."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck
from hypothesis import strategies as st

UNHEALTHY = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
"""What hypothesis would object to: one store for all examples, and large ones."""
HANDLES = ("@json", "@lines", "@text", "@binary", "@empty", "@artifact")
"""Stand for live handles: a strategy cannot know their names."""

CHARACTERS = st.characters()  # lone surrogates, NULs and control characters too; st.text() alone leaves surrogates out
NASTY = (
    "\x00\x07\x08\x1b\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\x85\r\n\r\u2028\u2029\u202e\u2066\ufeff\ud800\udfff\ud83d"
    "\U0001f600\U0010ffffßİé日[/red]{}[]\"'\\,:;|\t %_$.*?"
)
TEXTS = st.one_of(
    st.text(CHARACTERS, max_size=30),
    st.text(st.sampled_from(NASTY), max_size=30),
    st.sampled_from(["", "x" * 5_000, "r_222222222222", "é" * 600, "null", "NaN", "-0", "1e999", "9" * 5_000, "٣"]),
)


def words(text: str) -> list[str]:
    """What stands between the spaces."""
    return text.split(" ")


def nested(depth: int, *, is_object: bool = False) -> Any:
    """A value so many levels deep."""
    value: Any = 0
    for _ in range(depth):
        value = {"a": value} if is_object else [value]
    return value


class Odd:
    """Something that no JSON holds and that cannot even be shown."""

    def __repr__(self) -> str:
        raise ZeroDivisionError

    __str__ = __repr__


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400]),
    st.floats(),
    TEXTS,
    st.binary(max_size=20),
    st.builds(bytearray, st.binary(max_size=5)),
    st.builds(object),
    st.complex_numbers(),
    st.dates(),
)
VALUES = st.one_of(
    SCALARS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3) | st.tuples(inner),
        max_leaves=5,
    ),
)
WORST = (Odd(), 1 << 400_000, nested(100_000), nested(100_000, is_object=True), {Odd(): 1}, [Odd()], b"\xff" * 9, type)
"""Values that cannot even be printed, so that hypothesis cannot draw them."""

_KEYS = st.sampled_from(["a", "b", "é", "0", "-1", "a.b", "[0]", '"', "log", "\ud800", ""]) | TEXTS
_STEPS = st.one_of(
    _KEYS.map(lambda key: "." + key),
    _KEYS.map(lambda key: f"[{json.dumps(key)}]"),
    _KEYS.map(lambda key: f"['{key}']"),
    st.integers(-3, 3).map(lambda index: f"[{index}]"),
    st.sampled_from(
        ["[*]", "[]", "..", "[", "]", "$", "[ 1 ]", f"[{'9' * 500}]", "[-0]", "[1:2]", '["\\u00', "['\\x']"]
    ),
)
PATHS = st.one_of(
    st.lists(_STEPS, max_size=4).map("".join),
    st.lists(_STEPS, max_size=4).map(lambda steps: "$" + "".join(steps)),
    st.sampled_from(["$", "", "[0]" * 2_000, "$" + ".a" * 1_000, "a" * 5_000, "$.log", "$.inner.a"]),
    TEXTS,
)
_REGEX_PARTS = st.one_of(
    st.sampled_from(
        words(
            r"( ) (?: (?i) (?-i) (?s) (?P<n> (?=a) (?!a) (?<=a) (?# [ ] [^ [[:alpha:]] [^\n] [a-] [z-a] . .* .*? a+ "
            r"a++ (a|a)*b (a+)+$ {2} {1000} {1001} {,3} {3,} {2,1} {99999999} \pN \p{Greek} \PL \X \C \A \z \Z \b \B "
            r"\1 \k<n> \Q \E \x{110000} \xff \u0041 \n \r \ ^ $ | * + ? ERROR a é 日"
        )
    ),
    st.sampled_from(["\n", "\r", "\x00", "\ud800", "((((a{9}){9}){9}){9})", "(" * 500, "a" * 1_025, "(a{2}){2}" * 50]),
    TEXTS,
)
PATTERNS = st.lists(_REGEX_PARTS, min_size=1, max_size=5).map("".join)

_GOOD: dict[str, st.SearchStrategy[Any]] = {
    "handle": st.sampled_from(HANDLES),
    "path": PATHS,
    "fields": st.lists(PATHS, min_size=1, max_size=4),
    "pattern": PATTERNS,
    "match": st.sampled_from(["a", "ERROR", "\n", "é"]) | TEXTS,
    "key": st.sampled_from(["plan", "log"]) | TEXTS,
    "filename": st.sampled_from(["plan.md", "@artifact", "../../etc/passwd"]) | TEXTS,
    "content": TEXTS,
    "value": TEXTS,
    "prefix": st.sampled_from(["", "p", "%", "_"]) | TEXTS,
    "after": st.sampled_from(["", "a", "\U0010ffff"]) | TEXTS,
}
_COUNTS = st.integers(-1, 60) | st.sampled_from([2**31, 2**32 + 2, 2**63 - 1, 2**63])


def arguments(verb: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of a verb: mostly of their kind, then of any; some missing, some unknown."""

    def plausible(name: str, kind: str) -> st.SearchStrategy[Any]:
        return st.booleans() if kind == "boolean" else _GOOD.get(name, _COUNTS)

    near = {p.name: plausible(p.name, p.kind) for p in verb.parameters}
    wild = {name: st.one_of(good, good, VALUES) for name, good in near.items()}
    needed = {p.name: near[p.name] for p in verb.parameters if p.required}
    optional = {name: good for name, good in near.items() if name not in needed}
    extra = st.dictionaries(TEXTS | st.integers() | st.none() | st.builds(bytes), VALUES, max_size=2)
    return st.one_of(
        st.fixed_dictionaries(needed, optional=optional),
        st.fixed_dictionaries(needed, optional=optional),
        st.fixed_dictionaries({}, optional=wild),
        st.builds(lambda known, more: {**more, **known}, st.fixed_dictionaries({}, optional=wild), extra),
    )


_LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\n\n\n", ""])
_JSON_PARTS = st.one_of(
    st.sampled_from(
        words(
            r'{ } [ ] , : " \ \u \ud800 \udc00 null true NaN -Infinity 0 -0 01 1e999 1E+ .5 -- /**/ "a" "a":1 '
            r'{"a":1,"a":2} {"a":[{"b":1}]} {"__proto__":1} "\u0000" "\ud83d\ude00"'
        )
    ),
    st.sampled_from(["\ufeff", "9" * 5_000, f'"{"x" * 3_000}"', '{"a":' * 50, "\n", "\x00", '"\n"', " \t\r\n"]),
    st.text(CHARACTERS, max_size=5),
)
_JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(CHARACTERS, max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_JSON_TEXTS = st.builds(json.dumps, _JSON_VALUES, indent=st.none() | st.just(1), ensure_ascii=st.booleans())
_STUBS = st.builds(
    lambda handle, text: json.dumps({"handle": handle, "preview": text, "size": 9, "note": "read_handle(offset=0)"}),
    st.sampled_from(["r_222222222222", ""]),
    TEXTS,
)


def _spoilt(text: str, places: list[tuple[float, str]]) -> str:
    """``text`` with a character here and there replaced, which is most of what makes JSON almost JSON."""
    for place, put in places:
        at = int(place * len(text))
        text = text[:at] + put + text[at + 1 :]
    return text


PLACE = st.floats(0, 1, exclude_max=True)
"""Somewhere in a text."""
_PLACES = st.lists(st.tuples(PLACE, st.sampled_from('{}[],:"\\x0\n\x00é')), max_size=4)
_TEXTS_OF_CONTENT = st.one_of(
    st.lists(st.tuples(TEXTS, _LINE_ENDS).map("".join), max_size=8).map("".join),
    _JSON_TEXTS,
    st.builds(_spoilt, _JSON_TEXTS, _PLACES),
    st.lists(_JSON_TEXTS, max_size=5).map("\n".join),  # JSON Lines, or almost
    st.lists(_JSON_PARTS, max_size=12).map("".join),
    st.builds(lambda inner: json.dumps({"log": inner, "inner": inner}), _JSON_TEXTS | TEXTS),
    _STUBS,
    st.sampled_from([part * depth for part in ("[", '{"a":', '[{"a":') for depth in (9, 100_000)]),
    st.sampled_from([100, 3_000, 100_000]).map(lambda depth: "[" * depth + "]" * depth),
    st.sampled_from([100, 100_000]).map(lambda depth: '{"a":' * depth + "1" + "}" * depth),
    st.builds(lambda part, times: part * times, TEXTS.filter(bool), st.sampled_from([3, 500])),
    st.builds(lambda part: part * (200_000 // len(part)), TEXTS.filter(bool)),  # often one giant line
)


def _cut(data: bytes, first: int, last: int, more: bytes) -> bytes:
    return data[first : len(data) - last] + more


CONTENTS: st.SearchStrategy[Any] = st.one_of(
    _TEXTS_OF_CONTENT,
    _TEXTS_OF_CONTENT,
    st.binary(max_size=200),
    # almost UTF-8: cut inside characters, surrogates, an odd byte at the end
    st.builds(
        _cut,
        _TEXTS_OF_CONTENT.map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.integers(0, 3),
        st.integers(0, 3),
        st.sampled_from([b"", b"\xff", b"\xf0\x9f", b"\x00"]),
    ),
    _JSON_VALUES.filter(lambda value: not isinstance(value, str)),
)

_TOML_VALUES = st.one_of(
    st.sampled_from(
        words('true -1 0 1.5 nan -inf 1e400 "" "." [] [[1]] {} {a=1} 1979-05-27 07:32:00 0x_f 1_ "\\u0000" """ "~no/x"')
    ),
    st.sampled_from(["", '" "', "'''\n'''", "9" * 5_000, "[" * 200, "{ a = " * 200, "\x00"]),
    _KEYS.map(json.dumps),
    TEXTS,
)
_TOML_PIECES = st.sampled_from(["[[", "]]", *"[]=.\"'#\n{},\\\x00\ré\ud800"])


@st.composite
def configurations(draw: st.DrawFn, example: str) -> str:
    """The example file with some of its lines, keys and characters replaced."""
    lines = example.split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        key = lines[at].partition("=")[0]
        match draw(st.integers(0, 5)):
            case 0 | 1:
                lines[at] = f"{key}= {draw(_TOML_VALUES)}"
            case 2:
                lines[at] = lines[draw(st.integers(0, len(lines) - 1))]
            case 3:
                place = draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:place] + draw(_TOML_PIECES) + lines[at][place + draw(st.integers(0, 2)) :]
            case 4:
                lines.insert(at, f"{draw(_KEYS)} = {draw(_TOML_VALUES)}")
            case 5:
                lines.insert(at, f"[{draw(_KEYS)}]")
    return "\n".join(lines)

"""Token counts, compared with plain tiktoken, whose cache holds our vocabularies."""

import gzip
import hashlib
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.v1 import llm_pb2
from services.runtime.tokens import count
from services.runtime.tokens.count import PIECE_CHARS_MAX, EncodingName, count_message, count_request, count_text

ROOT = Path(__file__).parents[3]
NAMES: tuple[EncodingName, ...] = get_args(EncodingName)
URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
"""The address tiktoken would download from; the cache names files by its hash."""

CUT_TOKENS_MAX = 2
"""How many tokens a cut inside a run of characters may add or save."""

CORPUS = [
    "",
    "The quick brown fox jumps over the lazy dog. It's 12,345.67 °C; isn't it? THEY'LL say “no” — I'D say “yes”…",
    "敏捷的棕色狐狸跳过了懒狗。今天北京的天气怎么样？请用三句话回答，不要超过一百个字！「水车」、《磨坊》；好。",
    "すばやい茶色の狐がのろまな犬を飛び越える。カタカナも、ひらがなも、漢字も。",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다.",
    "Быстрая бурая лиса. Η γρήγορη καφέ αλεπού. الثعلب البني السريع يقفز. השועל החום המהיר.",
    "सुन्दर हिन्दी वाक्य। สวัสดีชาวโลก தமிழ் మంచి рок-н-ролл",
    "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪 ∑∫√ ½ ² ① Ⅷ ʼn café cafe\u0301 Å ﬁ \u200b\u202e zero\u0000width",
    "def main(argv: list[str]) -> int:\n\tif argv:\n\t\treturn 1\n\n    # 4 blanks\r\n  \r\n\n\nprint('x'*3)  \n",
    '{"city": "Paris", "days": [1, 2, 3], "unit": null, "path": "C:\\\\temp\\\\a_b-c.d", "url": "https://example.org/?q=a%20b#c"}',
    "<|endoftext|> <|fim_prefix|> <|im_start|>system",
    "    \t\n  \n\n\n     x \n",
    "<div class='a'>/* x */ // y\n/ / /\n</div>///\n!!!\n\n??/\r\n/",
]
ALL = "\n".join(CORPUS)


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[EncodingName, tiktoken.Encoding]:
    """Plain tiktoken; it also checks the hash of what it loads."""
    for name in NAMES:
        packed = (ROOT / "services" / "runtime" / "tokens" / "vocabularies" / f"{name}.tiktoken.gz").read_bytes()
        (tmp_path / hashlib.sha1(URL.format(name).encode()).hexdigest()).write_bytes(gzip.decompress(packed))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return {name: tiktoken.get_encoding(name) for name in NAMES}


def count_with_tiktoken(encoding: tiktoken.Encoding, text: str) -> int:
    return len(encoding.encode_ordinary(text))


@pytest.mark.parametrize("name", NAMES)
def test_counts_equal_those_of_tiktoken(name: EncodingName, plain: dict[EncodingName, tiktoken.Encoding]) -> None:
    for text in (*CORPUS, ALL, "lone \ud83d surrogate"):
        assert count_text(text, name) == count_with_tiktoken(plain[name], text), text[:40]


@pytest.mark.parametrize("name", NAMES)
def test_long_text_with_cut_points_is_counted_exactly(
    name: EncodingName, plain: dict[EncodingName, tiktoken.Encoding]
) -> None:
    sources = "".join(path.read_text() for path in sorted((ROOT / "services").rglob("*.py")))[:300_000]
    for text in (ALL * 200, CORPUS[2] * 2_000, CORPUS[9] * 1_500, sources):
        assert len(text) > 5 * PIECE_CHARS_MAX
        assert count_text(text, name) == count_with_tiktoken(plain[name], text), text[:40]


ALPHABETS = ["aB", "水车。", "\u0301a", " \n", "\r\n", "/.", "1", "ab1 ", "'s", "👩‍", "A ,", "x'S9_-\t"]


@given(
    st.sampled_from(NAMES),
    st.lists(st.tuples(st.sampled_from(ALPHABETS), st.integers(1, 30_000), st.integers(1, 7)), min_size=1, max_size=4),
)
def test_a_cut_inside_a_run_changes_the_count_by_two_tokens_at_most(
    name: EncodingName, runs: list[tuple[str, int, int]]
) -> None:
    text = "".join((alphabet * length)[::step] for alphabet, length, step in runs)[:60_000]
    cuts = len(text) // (PIECE_CHARS_MAX // 2)
    whole = count_with_tiktoken(count.encoding(name), text)
    assert abs(count_text(text, name) - whole) <= CUT_TOKENS_MAX * cuts


@cache  # not at the import, which each worker does
def list_next_characters() -> list[str]:
    """Return the characters before which a cut may be made."""
    return [chr(code) for code in range(0x110000) if count.CUT.match("a" + chr(code))]


ANY_TEXT = st.text(max_size=40) | st.text("aZſ's7 \n\t.水\u0301/", max_size=20)


@given(st.sampled_from(NAMES), ANY_TEXT, st.sampled_from("a水7ßſZ"), ANY_TEXT)
@example("o200k_base", "do", "n", "t")  # one token with its apostrophe, and so no place to cut
def test_a_cut_where_the_encodings_split_changes_nothing(name: EncodingName, left: str, last: str, right: str) -> None:
    bpe = count.encoding(name)
    for first in list_next_characters():
        whole = left + last + first + right
        assert count_with_tiktoken(bpe, left + last) + count_with_tiktoken(bpe, first + right) == count_with_tiktoken(
            bpe, whole
        ), whole


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("unit", ["a", " ", "\n", "水", "\u0301", "/", "QmFzZTY0"])
def test_a_megabyte_without_a_cut_point_is_counted(name: EncodingName, unit: str) -> None:
    count = count_text((unit * 1_000_000)[:1_000_000], name)
    assert 0 < count <= 1_000_000 + 200


def test_pieces_for_tiktoken_are_bounded_and_complete() -> None:
    for text in ("x" * 100_000, ALL * 200, " " * 100_001, ("水" * 20_000 + "。") * 5):
        pieces = list(count.pieces(text))
        assert "".join(pieces) == text
        assert all(PIECE_CHARS_MAX // 2 <= len(piece) <= PIECE_CHARS_MAX for piece in pieces[:-1])


def test_a_message_costs_four_more_than_its_role_and_content() -> None:
    message = llm_pb2.Message(role="user", content=[llm_pb2.ContentPart(text="Hello, world")])
    assert count_message(message, "o200k_base") == 4 + 1 + 3
    message = llm_pb2.Message(role="assistant", reasoning_content="Hello, world")
    assert count_message(message, "o200k_base") == 4 + 1 + 3


def test_a_call_costs_its_name_arguments_and_id() -> None:
    call = llm_pb2.ToolCall(id="call_1", name="city_datetime", arguments='{"city":"Paris"}')
    texts = sum(count_text(text, "cl100k_base") for text in (call.id, call.name, call.arguments))
    message = llm_pb2.Message(role="assistant", tool_calls=[call, call])
    assert count_message(message, "cl100k_base") == 4 + 1 + 2 * texts


def test_an_image_costs_its_tiles() -> None:
    text, low = llm_pb2.ContentPart(text="look"), llm_pb2.ContentPart(image=llm_pb2.ImagePart(url="x", detail="low"))
    message = llm_pb2.Message(role="user", content=[text, low, low])
    assert count_message(message, "o200k_base") == 4 + 1 + 1 + 2 * 85


def test_a_request_costs_two_more_than_its_messages_and_its_tools() -> None:
    message = llm_pb2.Message(role="user", content=[llm_pb2.ContentPart(text="Hello, world")])
    tool = llm_pb2.ToolSchema(name="bash", description="Run it.", parameters='{"type":"object"}')
    assert count_request([], [], "o200k_base") == 2
    assert count_request([message, message], [], "o200k_base") == 2 + 2 * 8
    texts = sum(count_text(text, "o200k_base") for text in (tool.name, tool.description, tool.parameters))
    assert count_request([message], [tool, tool], "o200k_base") == 2 + 8 + 12 + 2 * (7 + texts)


def test_a_damaged_vocabulary_is_rejected() -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        count.parse_vocabulary(b"IQ== 0\n", "0" * 64)


def test_no_network_library_is_imported_and_no_vocabulary_loaded_early() -> None:
    program = (
        "import sys; from services.runtime.tokens.count import count_text\n"
        "from services.runtime.tokens.count import is_loaded\n"
        "assert not is_loaded('o200k_base'); count_text('x', 'o200k_base'); assert is_loaded('o200k_base')\n"
        "assert not is_loaded('cl100k_base'); print(sorted({'requests', 'urllib3', 'regex'} & set(sys.modules)))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "[]\n"

"""Inline reasoning with its text split anywhere: nothing is lost, and only possible markers are held back."""

from hypothesis import given
from hypothesis import strategies as st

from services.llm_gateway.protocols.openai.reasoning import InlineThinking

PIECES = st.lists(st.sampled_from(["<think>", "</think>", "<", ">", "th", "/", "`", " ", "水", "a"]), max_size=12)


def kinds(texts: list[str]) -> tuple[str, str]:
    inline = InlineThinking()
    pieces = [piece for text in texts for piece in inline.split_text(text)] + inline.take_rest()
    assert all(text for _, text in pieces)
    return "".join(text for is_said, text in pieces if is_said), "".join(
        text for is_said, text in pieces if not is_said
    )


@given(PIECES, st.data())
def test_reasoning_is_separated_alike_however_the_text_is_split(pieces: list[str], data: st.DataObject) -> None:
    text = "".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    assert kinds([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == kinds([text])


@given(st.text(alphabet=" ab<>/水`", max_size=30))
def test_text_without_a_marker_is_kept(text: str) -> None:
    assert kinds([*text]) == ("", text)


@given(PIECES)
def test_fewer_than_eight_bytes_are_held_back(pieces: list[str]) -> None:
    for end in range(len(pieces) + 1):
        inline = InlineThinking()
        for text in pieces[:end]:
            inline.split_text(text)
        assert sum(len(text.encode()) for _, text in inline.take_rest()) < 8

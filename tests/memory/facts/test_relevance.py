"""Which facts a question recalls: judged by people (tests/memory/facts/judged/README.md), and by kinds of words."""

import tomllib
from pathlib import Path

import pytest

from services.runtime.auth.identity import Identity
from tests.support.memory.writing import Memory

pytestmark = pytest.mark.engines

JUDGED = Path(__file__).with_name("judged")

CHITCHAT = """\
How is the weather today?|Good evening!|What time is it?|Can you help me?|Thank you so much.
Nice to meet you|Go on, please.
Wie ist das Wetter heute?|Schönen Abend noch!|Wie spät ist es?|Kannst du mir helfen?|Vielen Dank!|Mach weiter.
Quel temps fait-il ?|Bonne journée !|Quelle heure est-il ?|Tu peux m'aider ?|Merci mille fois.|Continue.
¿Qué tiempo hace hoy?|¡Buenas noches!|¿Qué hora es?|¿Me puedes ayudar?|Muchas gracias.|Sigue, por favor.
Che tempo fa oggi?|Come stai?|Grazie mille|Como está o tempo hoje?|Tudo bem?|Muito obrigado
Wat voor weer wordt het vandaag?|Hoe gaat het?|Hur mår du?|Tack så mycket|Hvordan er vejret i dag?|Hvordan går det?
Millainen sää on tänään?|Mitä kuuluu?|Hogy vagy?|Как дела?|Спасибо большое|Nasılsın?
今天天气怎么样?|今日の天気は?|오늘 날씨 어때?"""


@pytest.mark.parametrize("judged", ["judged", "held_out"])
async def test_a_question_recalls_the_facts_people_judged_relevant_and_few_others(memory: Memory, judged: str) -> None:
    relevant = recalled = wrong = question_count = 0
    for person, entry in tomllib.loads((JUDGED / f"{judged}.toml").read_text("utf-8")).items():
        caller = memory.acting_as(Identity("acme", person))
        texts = [text.rpartition(" | ") for text in entry["facts"]]
        for topic, _, text in texts:
            await caller.remember(text, topic=topic)
        for question in entry["questions"]:
            found = set(await caller.recall(question["ask"], limit=100))
            expected = {texts[number - 1][2] for number in question["facts"]}
            assert expected or not found, f"{question['ask']!r} is about no fact"
            relevant, recalled = relevant + len(expected), recalled + len(expected & found)
            wrong, question_count = wrong + len(found - expected), question_count + 1
    assert recalled / relevant >= 0.95
    assert wrong / question_count <= 0.4


async def test_chitchat_recalls_no_fact(memory: Memory) -> None:
    for entry in tomllib.loads((JUDGED / "judged.toml").read_text("utf-8")).values():
        for text in entry["facts"]:
            await memory.remember(text.rpartition(" | ")[2])
    for question in CHITCHAT.replace("\n", "|").split("|"):
        assert await memory.recall(question) == [], question


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("And my wife?", ["The user's wife is called Ana."]),
        ("What is my wife's name?", ["The user's wife is called Ana."]),
        ("Welche Versicherung habe ich?", ["Die Autoversicherung ist bei der HUK."]),
        ("Hvilken forsikring har jeg?", ["Har bilforsikring hos Tryg."]),
        ("¿Dónde esta mi telefono?", ["El teléfono está en la oficina."]),
        ("Qu'est-ce que mange l’enfant a midi ?", ["Les enfants mangent à la cantine."]),
        ("Am I allergic to anything?", ["has a pollen allergy"]),
        ("Where are my children's schools?", ["Both children go to the school in Park Street."]),
        ("Когда у моей дочери урок музыки?", ["Дочь учится музыке."]),
        ("我的狗几岁了?", ["养了一只大狗"]),
        ("わたしの犬は何歳?", ["柴犬を飼っている"]),
        ("내 강아지는 몇 살이야?", ["강아지를 키운다"]),
        ("สุนัขของฉันชื่ออะไร", ["มีสุนัขสองตัว"]),
        ("What is 4711 about?", ["The order's number is 4711."]),
        ("What did I say about quantum physics?", []),
        ("?!", []),
    ],
)
async def test_a_question_finds_facts_by_inflected_forms_of_its_words(
    memory: Memory, query: str, found: list[str]
) -> None:
    for text in (
        "The user's wife is called Ana.",
        "Die Autoversicherung ist bei der HUK.",
        "Har bilforsikring hos Tryg.",
        "El teléfono está en la oficina.",
        "Les enfants mangent à la cantine.",
        "has a pollen allergy",
        "Both children go to the school in Park Street.",
        "Дочь учится музыке.",
        "养了一只大狗",
        "柴犬を飼っている",
        "강아지를 키운다",
        "มีสุนัขสองตัว",
        "The order's number is 4711.",
        "My boat is called Ada.",
    ):
        await memory.remember(text)
    assert await memory.recall(query) == found


async def test_a_question_about_two_things_recalls_both_even_if_most_facts_are_about_one(memory: Memory) -> None:
    for number in range(10):
        await memory.remember(f"likes tea of kind {number}")
    await memory.remember("the dog is called Rex")
    found = await memory.recall("What is my dog called, and do I like tea?")
    assert found[0] == "the dog is called Rex"
    assert len(found) == 11


async def test_a_name_word_finds_facts_if_the_question_is_about_nothing_else(memory: Memory) -> None:
    for text in ("The user's name is Jo.", "likes chess", "works at night", "My boat is called Ada."):
        await memory.remember(text)
    assert await memory.recall("What is my name?") == ["The user's name is Jo."]
    assert await memory.recall("What do I like?") == ["likes chess"]
    assert await memory.recall("I would like a recipe for pancakes") == []
    assert await memory.recall("What is the largest animal called that works in packs?") == []

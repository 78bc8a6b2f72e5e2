"""The console's Markdown rendering, whole and in pieces, and the markup it must not produce."""

import pytest
from playwright.async_api import expect

from tests.support.console.page import Opening
from tests.support.console.scripted import Story

pytestmark = pytest.mark.asyncio(loop_scope="session")

DRAW = """async (pieces) => {
    const { Markdown } = await import('/console/markdown/markdown.js');
    const markdown = new Markdown(document.createElement('div'));
    let text = '';
    for (const piece of pieces) markdown.draw(text += piece);
    markdown.end();
    return markdown.element.innerHTML;
}"""

PRE = '<pre tabindex="0" role="group" aria-label="Code{}"><code>{}</code></pre>'
MATH = '<{0} data-tex="{1}">{2}</{0}>'
TABLE = '<div class="table" tabindex="0" role="group" aria-label="Table"><table>{}</table></div>'
A = '<a href="{}" target="_blank" rel="noopener noreferrer">{}</a>'

CASES = {
    "a\nb\n\nc": "<p>a<br>b</p><p>c</p>",
    "# One\n### Three ###\n#no": "<h3>One</h3><h5>Three</h5><p>#no</p>",
    "**a** *b* __c__ _d_ ~~e~~": "<p><strong>a</strong> <em>b</em> <strong>c</strong> <em>d</em> <del>e</del></p>",
    "***a*** snake_case_word 2 * 3 * 4": "<p><em><strong>a</strong></em> snake_case_word 2 * 3 * 4</p>",
    "`a < b` ``c ` d`` `open": "<p><code>a &lt; b</code> <code>c ` d</code> `open</p>",
    r"\*a\* \\": "<p>*a* \\</p>",
    "```py\nx = 1\n\n# y\n```\nend": PRE.format(', py" data-language="py', "x = 1\n\n# y") + "<p>end</p>",
    "a\n```b`c\nd": "<p>a<br>```b`c<br>d</p>",
    "~~~\nopen": PRE.format("", "open"),
    "* * *\n- - -\n* a": "<hr><hr><ul><li><p>a</p></li></ul>",
    "> a\n> - b\n\n---": "<blockquote><p>a</p><ul><li><p>b</p></li></ul></blockquote><hr>",
    "- a\n  - b\n- c": "<ul><li><p>a</p><ul><li><p>b</p></li></ul></li><li><p>c</p></li></ul>",
    "1. a\n   - b\n     - c\n2. d": (
        "<ol><li><p>a</p><ul><li><p>b</p><ul><li><p>c</p></li></ul></li></ul></li><li><p>d</p></li></ol>"
    ),
    "3. a\n\n   more\n4. b\n\nout": ('<ol start="3"><li><p>a</p><p>more</p></li><li><p>b</p></li></ol><p>out</p>'),
    "| a | b |\n|:-:|--:|\n| 1 | `2` |\n\nend": TABLE.format(
        '<thead><tr><th class="to-center">a</th><th class="to-end">b</th></tr></thead>'
        '<tbody><tr><td class="to-center">1</td><td class="to-end"><code>2</code></td></tr></tbody>'
    )
    + "<p>end</p>",
    '[a *b*](https://x.org/p_(q) "t") <mailto:a@b.org>': (
        "<p>"
        + A.format("https://x.org/p_(q)", "a <em>b</em>")
        + " "
        + A.format("mailto:a@b.org", "mailto:a@b.org")
        + "</p>"
    ),
    "see https://x.org/a_b. (https://x.org)": (
        "<p>see "
        + A.format("https://x.org/a_b", "https://x.org/a_b")
        + ". ("
        + A.format("https://x.org/", "https://x.org")
        + ")</p>"
    ),
    "[[1]](https://x.org/) [a][b]\n\n[b]: https://x.org/b": (
        "<p>" + A.format("https://x.org/", "[1]") + " " + A.format("https://x.org/b", "a") + "</p>"
    ),
    "One\n===\n\n    code\n    more": "<h3>One</h3>" + PRE.format("", "code\nmore"),
    "- [x] a\n- [ ] b": (
        '<ul><li class="task"><p><input type="checkbox" disabled=""> a</p></li>'
        '<li class="task"><p><input type="checkbox" disabled=""> b</p></li></ul>'
    ),
    "$a_1$ costs $5 or $10, $ 1 $ \\(b*c*d\\)": (
        "<p>"
        + MATH.format("span", "a_1", "$a_1$")
        + " costs $5 or $10, $ 1 $ "
        + MATH.format("span", "b*c*d", "\\(b*c*d\\)")
        + "</p>"
    ),
    "$$\na\n- b\n$$\n\\[c\\]\nend\n$$d$$ $$\n\n$$ open\n# a\n\nb": (
        MATH.format("p", "\na\n- b\n", "$$\na\n- b\n$$")
        + MATH.format("p", "c", "\\[c\\]")
        + '<p>end<br><span data-tex="d" data-display="true">$$d$$</span> $$</p><p>$$ open\n# a</p><p>b</p>'
    ),
    "a &lt; b &amp;&#x41; &nope;": "<p>a &lt; b &amp;A &amp;nope;</p>",
    "> " * 40 + "deep": "<p>" + "&gt; " * 40 + "deep</p>",
    "| a | b |\n|-|-|\n| x<br>y<BR /> | z |": TABLE.format(
        '<thead><tr><th class="to-start">a</th><th class="to-start">b</th></tr></thead>'
        '<tbody><tr><td class="to-start">x<br>y<br></td><td class="to-start">z</td></tr></tbody>'
    ),
    "见 https://x.org/a，然后 **www.x.org/b。** [水](https://x.org/水) <https://x.org/水>": (
        "<p>见 "
        + A.format("https://x.org/a", "https://x.org/a")
        + "，然后 <strong>"
        + A.format("http://www.x.org/b", "www.x.org/b")
        + "。</strong> "
        + A.format("https://x.org/%E6%B0%B4", "水")
        + " "
        + A.format("https://x.org/%E6%B0%B4", "https://x.org/水")
        + "</p>"
    ),
    "**中文。**后 例**“加粗”**例 日本語**(強調)**日本語 한국어**[강조]**한국어 ~~删。~~后": (
        "<p><strong>中文。</strong>后 例<strong>“加粗”</strong>例 日本語<strong>(強調)</strong>日本語 "
        "한국어<strong>[강조]</strong>한국어 <del>删。</del>后</p>"
    ),
    "*`a`*文 中*`b`* **a：**b **。 c**": (
        "<p><em><code>a</code></em>文 中<em><code>b</code></em> <strong>a：</strong>b <strong>。 c</strong></p>"
    ),
    'a**"b"**c': '<p>a**"b"**c</p>',
    "_中。_后 2**3。**4 ** 中 **": "<p>_中。_后 2<strong>3。</strong>4 ** 中 **</p>",
    "10~20 to 30~40, ~5 to ~~*6*~~": "<p>10~20 to 30~40, ~5 to <del><em>6</em></del></p>",
    "$5; set `PATH=$HOME` or $5 [a](https://x.org/?$b=1), $\\text{a}_`$": (
        "<p>$5; set <code>PATH=$HOME</code> or $5 " + A.format("https://x.org/?$b=1", "a") + ", $\\text{a}_`$</p>"
    ),
    "![p](https://x.org/p.png)": "<p>" + A.format("https://x.org/p.png", "p") + "</p>",
    "[![p](https://x.org/p.png)](https://x.org/)": "<p>" + A.format("https://x.org/", "p") + "</p>",
    "text[^1], more[^b]\n\n[^1]: note\n[^b]: https://x.org/\nend": (
        "<p>text[^1], more[^b]</p><p>[^1]: note</p><p>[^b]: "
        + A.format("https://x.org/", "https://x.org/")
        + "</p><p>end</p>"
    ),
    "<b onclick=x>no</b>": "<p>&lt;b onclick=x&gt;no&lt;/b&gt;</p>",
    "[x](javascript:alert(1)) [y](data:text/html,z) [z](/etc)": ("<p><span>x</span> <span>y</span> <span>z</span></p>"),
}


async def test_headings_lists_code_tables_quotes_and_links_are_rendered(opening: Opening) -> None:
    async with opening() as console:
        rendered = {text: await console.page.evaluate(DRAW, [text]) for text in CASES}
    assert rendered == CASES


@pytest.mark.nightly
async def test_text_in_pieces_renders_like_the_whole_text(opening: Opening) -> None:
    whole = "\n\n".join(CASES)
    async with opening() as console:
        expected = await console.page.evaluate(DRAW, [whole])
        for size in (1, 7, 64):
            pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
            assert await console.page.evaluate(DRAW, pieces) == expected


@pytest.mark.nightly
async def test_a_finished_block_is_not_rendered_again(opening: Opening) -> None:
    draw_after = """async () => {
        const { Markdown } = await import('/console/markdown/markdown.js');
        const markdown = new Markdown(document.createElement('div'));
        markdown.draw('one\\n\\n```\\nx');
        const [first, second] = markdown.element.children;
        markdown.draw('one\\n\\n```\\nx\\ny\\n```\\n\\nthree');
        const [before, code] = markdown.element.children;
        return [first === before, second === code, code.textContent];
    }"""
    async with opening() as console:
        assert await console.page.evaluate(draw_after) == [True, True, "x\ny"]


MARKS = ("[", "*", "`", "**a ", "![a](", "> ", "- ", "<http://", "| a ", "_a*", "~~~\n", "1. ", "[[1]](https://x.org) ")


@pytest.mark.nightly
async def test_no_text_makes_rendering_slow(opening: Opening) -> None:
    async with opening() as console:
        session = await console.page.context.new_cdp_session(console.page)
        await session.send("Performance.enable")

        async def thread_s() -> float:
            """Return the CPU time of the page's thread."""
            metrics = (await session.send("Performance.getMetrics"))["metrics"]
            return next(metric["value"] for metric in metrics if metric["name"] == "ThreadTime")

        async def draw(text: str) -> float:
            before_s = await thread_s()
            await console.page.evaluate(DRAW, [text])
            return await thread_s() - before_s

        for mark in MARKS:
            assert await draw(mark * (9_990 // len(mark))) < 3, mark
            assert await draw(mark * 100_000) < 3, mark
        for language in ("python", "cpp", "csharp", "java", "bash"):
            code = f"```{language}\n{('a' * 240 + chr(10)) * 40}```\n\n"
            assert await draw(code * 40) < 3, language
            await expect(console.page.locator("body")).to_be_visible()  # colours come after the text
            before_s = await thread_s()
            await console.page.wait_for_timeout(500)
            assert await thread_s() - before_s < 3, language


async def test_code_is_highlighted_and_copied_and_formulas_are_typeset(opening: Opening) -> None:
    text = "```python\nx = 1  # <b>\n```\n\n$$\\frac{1}{2}$$\n\nso $x^2$ and $\\href{javascript:1}{x}$ and $\\nope$"
    async with opening(Story().content(text).complete(), permissions=["clipboard-read", "clipboard-write"]) as console:
        await console.ask()
        await expect(console.page.locator("pre .hl-comment")).to_have_text("# <b>")
        await expect(console.page.locator("p > span > math[display=block] mfrac")).to_have_count(1)
        await expect(console.page.locator("[data-tex] math")).to_have_count(2)
        await expect(console.page.get_by_text("$\\nope$")).to_be_visible()
        await expect(console.page.locator(".answer a")).to_have_count(0)
        await console.page.get_by_role("button", name="Copy code").click()
        assert await console.page.evaluate("navigator.clipboard.readText()") == "x = 1  # <b>"
        loaded = "performance.getEntriesByType('resource').map(({ name }) => name.split('/').at(-1))"
        assert {"temml.js", "highlight.js"} <= {*await console.page.evaluate(loaded)}

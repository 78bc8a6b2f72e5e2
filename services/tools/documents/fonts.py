"""Finds fonts, chooses them for a PDF character by character, and embeds the glyphs used.

Latin text uses Vera, which comes with reportlab; missing characters are taken from DejaVu, which looks the same, and
from East Asian fonts. A PDF embeds TrueType outlines of one weight: variable fonts and PostScript outlines, which most
free CJK fonts have, are converted to that.
"""

from __future__ import annotations

import io
import os
import re
import unicodedata
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import count, groupby, islice
from pathlib import Path
from typing import Any

from fontTools.pens.cu2quPen import Cu2QuPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont, newTable
from fontTools.varLib.instancer import instantiateVariableFont
from reportlab.lib import fonts as reportlab_fonts
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont as EmbeddedFont

from services.tools.errors import ToolFailed

REGULAR, BOLD = 400, 700

CURVE_ERROR_MAX = 1.0
"""Maximum error of a converted curve, in units of a glyph's square of 1000."""

PACKAGES = (("reportlab", "fonts"), ("matplotlib", "mpl-data/fonts/ttf"), ("justmytype_intl_cjk", "fonts/ofl"))
"""Python packages with fonts, and their folders."""

FOLDERS = (
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "~/.local/share/fonts",
    "~/.fonts",
    "/Library/Fonts",
    "/System/Library/Fonts",
    "C:/Windows/Fonts",
)
FILES_MAX = 20_000
"""Maximum files examined; a machine with more has enough fonts among these."""

MISSING = "?"
ADDED = f"{MISSING} •…|/0123456789"
"""Characters that a document has in addition to its text."""

CODE_POINT_MAX = 0xFFFF
"""reportlab writes no glyph-to-text map for characters above this, so they would be visible but not copyable."""


@dataclass(frozen=True, slots=True)
class FontFile:
    path: str

    number: int = 0
    """Number of the font in a collection."""


@lru_cache(maxsize=1)
def list_font_files() -> dict[str, str]:
    """Return the paths of the environment's and machine's fonts by file name; the first of each name counts."""
    packages = ((find_spec(name), folder) for name, folder in PACKAGES)
    folders = [
        Path(place) / folder
        for spec, folder in packages
        if spec is not None
        for place in spec.submodule_search_locations or ()
    ]
    folders += [Path(folder).expanduser() for folder in FOLDERS]
    paths: dict[str, str] = {}
    files = ((parent, name) for folder in folders for parent, _, names in os.walk(folder) for name in names)
    for parent, name in islice(files, FILES_MAX):
        if name.endswith((".ttf", ".otf", ".ttc")):
            paths.setdefault(name, os.path.join(parent, name))
    return paths


@lru_cache(maxsize=16)
def list_characters(file: FontFile) -> frozenset[int]:
    with _open_font(file) as font:
        return frozenset(font.getBestCmap() or ())


def make_face(file: FontFile, characters: Iterable[str], *, weight: int, name: str) -> bytes:
    """Create a TrueType font called `name`; `weight` takes effect in a variable font."""
    with _open_font(file) as font:
        options = Options(layout_features=[], hinting=False, notdef_outline=True, desubroutinize=True)
        options.drop_tables = [*options.drop_tables, "FFTM"]
        subsetter = Subsetter(options)
        subsetter.populate(unicodes=[ord(character) for character in characters])
        subsetter.subset(font)
        if "fvar" in font:
            axes = {axis.axisTag: axis.defaultValue for axis in font["fvar"].axes}
            instantiateVariableFont(font, axes | ({"wght": weight} if "wght" in axes else {}), inplace=True)
        if "CFF " in font:
            _convert_outlines(font)
        for record in font["name"].names:
            record.string = name
        made = io.BytesIO()
        font.save(made)
    return made.getvalue()


def _open_font(file: FontFile) -> Any:
    return TTFont(file.path, fontNumber=file.number, lazy=True)


def _convert_outlines(font: Any) -> None:
    """Replace cubic by quadratic outlines."""
    glyph_set, order = font.getGlyphSet(), font.getGlyphOrder()
    outlines: dict[str, Any] = {}
    for glyph in order:
        pen = TTGlyphPen(glyph_set)
        glyph_set[glyph].draw(Cu2QuPen(pen, CURVE_ERROR_MAX, reverse_direction=True))
        outlines[glyph] = pen.glyph()
    font["loca"], font["glyf"] = newTable("loca"), newTable("glyf")
    font["glyf"].glyphOrder, font["glyf"].glyphs = order, outlines
    for table in ("CFF ", "VORG"):
        if table in font:
            del font[table]
    limits = font["maxp"]
    limits.tableVersion = 0x00010000
    # Of instructions, which a converted outline has none of.
    names = ("Zones", "TwilightPoints", "Storage", "FunctionDefs", "InstructionDefs", "StackElements")
    vars(limits).update({f"max{name}": 1 if name == "Zones" else 0 for name in names} | {"maxSizeOfInstructions": 0})
    limits.maxComponentElements = max(
        (len(glyph.components) for glyph in outlines.values() if glyph.isComposite()), default=0
    )
    font["post"].formatType = 3.0
    font["head"].glyphDataFormat = 0
    font.sfntVersion = "\x00\x01\x00\x00"


@dataclass(frozen=True, slots=True)
class Style:
    bold: bool = False
    italic: bool = False
    code: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """File names of a family's faces; the regular one replaces an empty one."""

    regular: str
    bold: str = ""
    italic: str = ""
    bold_italic: str = ""
    number: int = 0
    """Number of the faces in a collection."""

    def pick_file(self, style: Style) -> str:
        file = self.regular
        if style.bold:
            file = (self.bold_italic if style.italic else "") or self.bold or file
        elif style.italic:
            file = self.italic or file
        return file if file in list_font_files() else self.regular


LATIN = Family("Vera.ttf", "VeraBd.ttf", "VeraIt.ttf", "VeraBI.ttf")
CODE = Family("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf", "DejaVuSansMono-Oblique.ttf")
WIDE = Family("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSans-Oblique.ttf", "DejaVuSans-BoldOblique.ttf")
JAPANESE = (
    Family("NotoSansJP[wght].ttf"),
    Family("NotoSansCJKjp-Regular.otf", "NotoSansCJKjp-Bold.otf"),
    Family("NotoSansJP-Regular.otf", "NotoSansJP-Bold.otf"),
)
EAST_ASIAN = (
    Family("NotoSansSC[wght].ttf"),
    Family("NotoSansCJK-Regular.ttc", "NotoSansCJK-Bold.ttc", number=2),
    Family("NotoSansCJKsc-Regular.otf", "NotoSansCJKsc-Bold.otf"),
    Family("NotoSansSC-Regular.otf", "NotoSansSC-Bold.otf"),
    Family("SourceHanSansSC-Regular.otf", "SourceHanSansSC-Bold.otf"),
    Family("NotoSansTC[wght].ttf"),
    Family("NotoSansKR[wght].ttf"),
    Family("wqy-microhei.ttc"),
    Family("wqy-zenhei.ttc"),
    Family("DroidSansFallbackFull.ttf"),
    Family("msyh.ttc", "msyhbd.ttc"),
    Family("malgun.ttf", "malgunbd.ttf"),
    Family("Arial Unicode.ttf"),
)
"""In the order to try; a Japanese text tries JAPANESE first, because it draws some characters differently."""

# reportlab's own registries: its public API has one font per readable name and keeps all of them forever, but each
# document here has its own fonts, with only the glyphs in use.
REGISTERED: dict[str, Any] = vars(pdfmetrics)["_fonts"]
FAMILIES_BY_NAME: dict[str, Any] = vars(reportlab_fonts)["_ps2tt_map"]
NAMES_BY_FAMILY: dict[Any, str] = vars(reportlab_fonts)["_tt2ps_map"]
LOOKS = [(bold, italic) for bold in (0, 1) for italic in (0, 1)]

_document_numbers = count(1)


class DocumentFonts:
    """The fonts of one document, registered with reportlab while `embed_fonts` is open."""

    def __init__(self, text: str) -> None:
        is_japanese = any("\u3040" <= letter <= "\u30ff" for letter in text)
        order = (WIDE, *JAPANESE, *EAST_ASIAN) if is_japanese else (WIDE, *EAST_ASIAN, *JAPANESE)
        self._fallbacks = [family for family in order if family.regular in list_font_files()]
        self._prefix = f"headrace{next(_document_numbers)}"
        self._letters = sorted({*text, *ADDED})
        self._choices: dict[tuple[str, bool], Family | None] = {
            (letter, code): self._find_family(letter, code=code) for letter in self._letters for code in (False, True)
        }
        self._names: dict[tuple[FontFile, bool], str] = {}
        self.missing_chars = sum(self._choices.get((letter, False)) is None for letter in text if letter.isprintable())

    def split_by_font(self, text: str, style: Style) -> Iterator[tuple[str, str]]:
        """Yield stretches of the text with the names of their fonts."""
        pairs = [self._choose_font(letter, style) for letter in text]
        for name, stretch in groupby(pairs, key=lambda pair: pair[0]):
            yield name, "".join(letter for _, letter in stretch)

    def name_of(self, style: Style) -> str:
        """Return the name of the style's Latin font."""
        return self._choose_font(MISSING, style)[0]

    def close(self) -> None:
        for name in self._names.values():
            REGISTERED.pop(name, None)
            FAMILIES_BY_NAME.pop(name, None)
            for look in LOOKS:
                NAMES_BY_FAMILY.pop((name, *look), None)

    def check_letters(self) -> None:
        """Raise ToolFailed if words would be unreadable because no font has their letters."""
        unknown = [
            letter
            for letter in self._letters
            if self._choices[letter, False] is None
            and ord(letter) <= CODE_POINT_MAX
            and unicodedata.category(letter).startswith("L")
        ]
        if scripts := sorted({unicodedata.name(letter, "unknown").partition(" ")[0] for letter in unknown}):
            raise ToolFailed(
                f"no font for {', '.join(scripts)} characters was found where the tools service runs: install "
                "headrace[data], which brings fonts, or a package of the system such as fonts-noto-cjk, and restart "
                "it; or take another fileType"
            )

    def _find_family(self, letter: str, *, code: bool) -> Family | None:
        first = CODE if code and CODE.regular in list_font_files() else LATIN
        if ord(letter) > CODE_POINT_MAX:
            return None
        for family in (first, *self._fallbacks):
            if ord(letter) in list_characters(FontFile(list_font_files()[family.regular], family.number)):
                return family
        return None

    def _choose_font(self, letter: str, style: Style) -> tuple[str, str]:
        family = self._choices.get((letter, style.code))
        if family is None:
            letter = " " if letter.isspace() else MISSING if letter.isprintable() else ""
            family = self._choices[MISSING, style.code] or LATIN
        key = (FontFile(list_font_files()[family.pick_file(style)], family.number), style.bold)
        if key not in self._names:
            self._names[key] = self._register_face(*key)
        return self._names[key], letter

    def _register_face(self, file: FontFile, is_bold: bool) -> str:
        name = f"{self._prefix}-{len(self._names)}"
        letters = [letter for letter in self._letters if ord(letter) in list_characters(file)]
        weight = BOLD if is_bold else REGULAR
        # A document knows its fonts by these names, so that no two of them have the same.
        readable = f"{re.split(r'[.[]', os.path.basename(file.path))[0].replace(' ', '')}-{weight}"
        face = make_face(file, letters, weight=weight, name=readable)
        REGISTERED[name] = EmbeddedFont(name, io.BytesIO(face), asciiReadable=False)
        FAMILIES_BY_NAME[name] = (name, 0, 0)
        NAMES_BY_FAMILY.update({(name, *look): name for look in LOOKS})
        return name


@contextmanager
def embed_fonts(texts: Iterable[str]) -> Generator[DocumentFonts]:
    """Create the fonts of a document with these texts. Raises ToolFailed if words would be unreadable in it."""
    fonts = DocumentFonts("".join(texts))
    try:
        fonts.check_letters()
        yield fonts
    finally:
        fonts.close()

"""Finds font files, and makes of one what a PDF embeds: TrueType outlines of one weight, for the characters in use.

Variable fonts and PostScript outlines, which most free CJK fonts have, are turned into that.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fontTools.pens.cu2quPen import Cu2QuPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont, newTable
from fontTools.varLib.instancer import instantiateVariableFont

REGULAR, BOLD = 400, 700

CURVE_ERROR_MAX = 1.0
"""Distance, in units of a glyph's square of 1000, that a converted curve may differ by."""

PACKAGES = (("reportlab", "fonts"), ("matplotlib", "mpl-data/fonts/ttf"), ("justmytype_intl_cjk", "fonts/ofl"))
"""Python packages that bring fonts, and where."""

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
"""Files that are looked at; a machine with more has fonts enough among these."""


@dataclass(frozen=True, slots=True)
class FontFile:
    path: str

    number: int = 0
    """Number of the font in a collection."""


@lru_cache(maxsize=1)
def list_font_files() -> dict[str, str]:
    """Returns the paths of the fonts of this environment and machine, by file name; the first of a name counts."""
    packages = ((find_spec(name), folder) for name, folder in PACKAGES)
    folders = [
        Path(place) / folder
        for spec, folder in packages
        if spec is not None
        for place in spec.submodule_search_locations or ()
    ]
    folders += [Path(folder).expanduser() for folder in FOLDERS]
    paths: dict[str, str] = {}
    for count, (folder, name) in enumerate(_walk_files(folders)):
        if count >= FILES_MAX:
            break
        if name.endswith((".ttf", ".otf", ".ttc")):
            paths.setdefault(name, os.path.join(folder, name))
    return paths


def _walk_files(folders: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                yield parent, name


@lru_cache(maxsize=16)
def list_characters(file: FontFile) -> frozenset[int]:
    with _open_font(file) as font:
        return frozenset(font.getBestCmap() or ())


def make_face(file: FontFile, characters: Iterable[str], *, weight: int, name: str) -> bytes:
    """Makes a TrueType font called `name`; `weight` takes effect in a variable font."""
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
    """Replaces cubic by quadratic outlines."""
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

"""Fill the letter template from a JSON file; the result is a Word file. The standard library only.

`template/` is the Word file unpacked. A paragraph of document.xml that holds a field, {{name}}, is repeated for each
line of its value.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

TEMPLATE = Path(__file__).parents[1] / "template"

PARAGRAPH = re.compile(r"<w:p>.*?</w:p>", re.DOTALL)
FIELD = re.compile(r"{{(\w+)}}")


def main() -> None:
    source, target = sys.argv[1:]
    values = json.loads(Path(source).read_text(encoding="utf-8"))
    document = (TEMPLATE / "word" / "document.xml").read_text(encoding="utf-8")
    fields = set(FIELD.findall(document))
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        sys.exit("the fields must be an object of texts")
    problems = [f"{name}: missing" for name in sorted(fields - set(values))]
    problems += [f"{name}: not a field of the template" for name in sorted(set(values) - fields)]
    if problems:
        sys.exit("\n".join(problems))
    pack(Path(target), PARAGRAPH.sub(lambda found: fill(found[0], values), document))
    print(f"{target}: {len(fields)} fields filled")


def fill(paragraph: str, values: dict[str, str]) -> str:
    """The paragraph, once for each line of its field; as it is when it has none."""
    field = FIELD.search(paragraph)
    if field is None:
        return paragraph
    lines = values[field[1]].splitlines() or [""]
    return "".join(paragraph.replace(field[0], escape(line)) for line in lines)


def pack(target: Path, document: str) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(TEMPLATE.rglob("*.xml")):
            name = str(path.relative_to(TEMPLATE))
            data = document if name == "word/document.xml" else path.read_text(encoding="utf-8")
            # In a Word file its name begins with a dot, and such files are not linked with a skill.
            file.writestr("_rels/.rels" if name == "_rels/rels.xml" else name, data)


if __name__ == "__main__":
    main()

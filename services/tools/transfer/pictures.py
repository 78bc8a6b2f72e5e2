"""Makes uploaded pictures small enough for a model."""

from __future__ import annotations

from pathlib import Path

from headrace.errors import InvalidRequest
from services.runtime.tokens.pictures import BadPicture, shrink_picture


def shrink_file(path: Path) -> None:
    """Replace too large a picture in `path`; blocks. Raises InvalidRequest where that cannot be done."""
    try:
        with path.open("rb") as file:
            smaller = shrink_picture(file)
    except BadPicture as error:
        raise InvalidRequest.of("file", str(error)) from error
    if smaller is not None:
        path.write_bytes(smaller)

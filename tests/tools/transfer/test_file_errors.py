"""What the file system can refuse, and what the callers of RPCs are told of it."""

from __future__ import annotations

import errno

import pytest

from headrace.errors import HeadraceError, InvalidRequest, NotFound, Overloaded, QuotaExceeded
from services.tools.transfer.file_errors import file_errors
from services.tools.workspace.quota import WorkspaceFull

TABLE: list[tuple[Exception, type[HeadraceError]]] = [
    (WorkspaceFull("full"), QuotaExceeded),
    (OSError(errno.ENOENT, ""), NotFound),
    (OSError(errno.ENOTDIR, ""), NotFound),
    (OSError(errno.EXDEV, ""), InvalidRequest),
    (OSError(errno.ELOOP, ""), InvalidRequest),
    (OSError(errno.ENAMETOOLONG, ""), InvalidRequest),
    (OSError(errno.ENXIO, ""), InvalidRequest),
    (OSError(errno.EACCES, ""), InvalidRequest),
    (OSError(errno.ENOSPC, ""), Overloaded),
    (OSError(errno.EDQUOT, ""), Overloaded),
    (OSError(errno.EIO, ""), Overloaded),
    (OSError(errno.EMFILE, ""), Overloaded),
    (OSError(errno.EROFS, ""), Overloaded),
    (ValueError("is a folder"), InvalidRequest),
]


@pytest.mark.parametrize(("raised", "told"), TABLE)
def test_what_a_caller_can_act_on_is_an_error_of_ours(raised: Exception, told: type[HeadraceError]) -> None:
    with pytest.raises(told), file_errors("path"):
        raise raised


def test_a_mistake_of_ours_is_nothing_that_a_caller_can_act_on() -> None:
    with pytest.raises(OSError, match="closed"), file_errors("path"):
        raise OSError(errno.EBADF, "closed")

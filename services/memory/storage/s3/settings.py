"""Location and access of the bucket, in the variables that AWS's own clients read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from services.runtime.process.config import setting

SCHEME = "s3://"

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9._/-]*")


@dataclass(frozen=True, slots=True)
class Place:
    """The location in a URL `s3://bucket/prefix`."""

    bucket: str
    prefix: str
    """Prefix of every key; empty, or with a trailing slash."""


def parse_place(url: str) -> Place:
    """Return the location in a URL. Raises ValueError."""
    bucket, _, prefix = url.removeprefix(SCHEME).partition("/")
    if not url.startswith(SCHEME) or not _BUCKET.fullmatch(bucket):
        raise ValueError("expected s3://bucket or s3://bucket/prefix, the bucket of 3 to 63 of a-z, 0-9, - and .")
    prefix = prefix.strip("/")
    if not _PREFIX.fullmatch(prefix) or {"", ".", ".."} & set(prefix.split("/") if prefix else ()):
        raise ValueError("expected a prefix of letters, digits, -, _ and ., in parts between slashes")
    return Place(bucket, f"{prefix}/" if prefix else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Access to a bucket; without an endpoint it is an AWS bucket."""

    region: str = setting("", name="AWS_REGION", aliases=("AWS_DEFAULT_REGION",))
    """Region of the bucket of HEADRACE_MEMORY_BLOBS; empty: the profile's, else us-east-1."""

    endpoint_url: str = setting("", name="AWS_ENDPOINT_URL", aliases=("AWS_ENDPOINT_URL_S3",))
    """Address of a store that is not AWS, such as `https://minio.storage:9000`; empty: AWS, in that region."""

    access_key_id: str = setting("", name="AWS_ACCESS_KEY_ID")
    """Id of the key that signs requests to the bucket; empty: as AWS's own clients find it, such as the role of a pod
    or an instance, or AWS_PROFILE."""

    secret_access_key: str = setting("", name="AWS_SECRET_ACCESS_KEY", secret=True)
    """The key itself."""

    session_token: str = setting("", name="AWS_SESSION_TOKEN", secret=True)
    """Session token of a temporary key; empty for a permanent one."""

    ca_bundle: Path | None = setting(None, name="AWS_CA_BUNDLE")
    """PEM file with the CAs of the store's certificate; empty: the machine's."""

    def check(self) -> None:
        """Raise ValueError for settings that cannot reach a bucket; without a bucket they are not checked."""
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise ValueError("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY: one is of no use without the other")
        if self.endpoint_url:
            parts = urlsplit(self.endpoint_url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ValueError(f"AWS_ENDPOINT_URL: {self.endpoint_url!r}: expected http://host:port or https://host")

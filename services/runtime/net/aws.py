"""Requests to AWS, signed with AWS's own library: botocore's credential chain and its signatures.

Credentials come from the environment, a profile (SSO too), the role of a pod or the metadata of an instance. The chain
renews those that expire. Import this module only where AWS is used: botocore takes 0.1 s and 15 MB.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# botocore has no types.
_auth, _errors = import_module("botocore.auth"), import_module("botocore.exceptions")
_AWSRequest = import_module("botocore.awsrequest").AWSRequest
_Session = import_module("botocore.session").Session

_SIGNERS = {"s3": _auth.S3SigV4Auth}

_PASSING = (_errors.HTTPClientError, _errors.CredentialRetrievalError, _errors.MetadataRetrievalError)

# For the source of credentials: the chain is asked again at the next request.
_CLIENT_CONFIG = import_module("botocore.config").Config(
    connect_timeout=5, read_timeout=5, retries={"total_max_attempts": 1}
)


class NoCredentials(Exception):
    """The chain has no credentials; the text has the reason."""

    def __init__(self, problem: str, may_pass: bool = False) -> None:
        super().__init__(problem)
        self.may_pass = may_pass
        """Whether the source of credentials does not answer now: a later request may succeed."""


@dataclass(frozen=True, slots=True)
class SignedHeaders:
    headers: dict[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    """Texts to mask in errors."""


class AwsSession:
    """One credential chain. Its calls may wait for a file or a service of AWS, so they belong in a thread."""

    def __init__(self) -> None:
        self._session: Any = _Session()
        self._session.set_default_client_config(_CLIENT_CONFIG)
        self._finding = threading.Lock()

    def set_key(self, key_id: str, secret: str, token: str) -> None:
        """Use this key instead of the chain's. An empty token means none."""
        self._session.set_credentials(key_id, secret, token or None)

    def find_region(self) -> str:
        """Return the region of the environment or the profile; empty if none is set. Raises NoCredentials."""
        try:
            return self._session.get_config_variable("region") or ""
        except _errors.BotoCoreError as error:
            raise NoCredentials(str(error)) from None

    def find_s3_host(self, region: str) -> str:
        """Return the host of S3 in a region, such as s3.cn-north-1.amazonaws.com.cn. Raises ValueError for an unknown
        region."""
        try:
            name = self._session.get_partition_for_region(region)
        except _errors.UnknownRegionError:
            raise ValueError(f"{region!r} is no region of AWS") from None
        partitions = {one["id"]: one["outputs"] for one in self._session.get_data("partitions")["partitions"]}
        return f"s3.{region}.{partitions[name]['dnsSuffix']}"

    def sign(
        self, service: str, region: str, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> SignedHeaders:
        """Return the headers with which to send a request; the URL's path and query are quoted as they are sent.

        Raises:
            NoCredentials: The chain has none, or its source refuses or does not answer.
        """
        try:
            with self._finding:
                found = self._session.get_credentials()
            if found is None:
                raise NoCredentials(
                    "AWS's chain has no credentials, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                )
            keys = found.get_frozen_credentials()
            request = _AWSRequest(method, url, dict(headers), body)
            _SIGNERS.get(service, _auth.SigV4Auth)(keys, service, region).add_auth(request)
        except _PASSING as error:
            raise NoCredentials(str(error), may_pass=True) from None
        except (_errors.BotoCoreError, _errors.ClientError) as error:
            raise NoCredentials(str(error)) from None
        return SignedHeaders(dict(request.headers.items()), tuple(filter(None, (keys.secret_key, keys.token))))

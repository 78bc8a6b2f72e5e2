"""A certificate authority for the tests of TLS."""

import datetime
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)
USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True, slots=True)
class Files:
    """Paths, as settings name them."""

    cert: str
    key: str
    ca: str


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(slots=True)
class Authority:
    """Issues certificates into files of `folder`."""

    folder: Path
    name: str = "headrace test"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    constraints: x509.NameConstraints | None = None
    """The names it may certify."""

    def issue(
        self,
        common_name: str,
        *,
        valid_days: int = 1,
        workload: x509.GeneralName | None = None,
        subject: str = "",
        key: rsa.RSAPrivateKey | None = None,
    ) -> Files:
        """For localhost, 127.0.0.1 and the workload `common_name`, or for a client that has the name `workload` alone;
        with negative days it has expired. Without a `key` it has one of P-256."""
        own_key = key or ec.generate_private_key(ec.SECP256R1())
        own = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.UniformResourceIdentifier(f"spiffe://headrace/{common_name}"),
        ]
        names = x509.SubjectAlternativeName(own if workload is None else [workload])
        cert = self._signed(_name(subject or common_name), own_key.public_key(), names, valid_days)
        stem = self.folder / common_name
        pem = serialization.Encoding.PEM
        secret = own_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return Files(
            _put(stem.with_suffix(".crt"), cert.public_bytes(pem)),
            _put(stem.with_suffix(".key"), secret),
            _put(self.folder / "ca.crt", self._own().public_bytes(pem)),
        )

    def _own(self) -> x509.Certificate:
        basic = x509.BasicConstraints(ca=True, path_length=0)
        return self._signed(_name(self.name), self.key.public_key(), basic, 30)

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        extension: x509.ExtensionType,
        valid_days: int,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        is_ca = isinstance(extension, x509.BasicConstraints)
        # Python 3.13's default contexts are strict: https://www.rfc-editor.org/rfc/rfc5280#section-4.2.1
        usage = dict.fromkeys(USAGES, False) | {"key_cert_sign" if is_ca else "digital_signature": True}
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(_name(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now + valid_days * DAY)
            .add_extension(extension, critical=is_ca)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        if is_ca and self.constraints is not None:
            builder = builder.add_extension(self.constraints, critical=True)
        return builder.sign(self.key, hashes.SHA256())


def _put(path: Path, content: bytes) -> str:
    """Write a file as a renewal does, replacing the old one atomically."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    return str(new.replace(path))

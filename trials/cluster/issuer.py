"""A token issuer outside of the suite: serves its keys over HTTPS, with a certificate of a private authority."""

from pathlib import Path
from typing import Any

from cryptography import x509

from tests.support.authority import Authority
from tests.support.issuing import jwk, jwks
from trials.cluster.kube import IMAGE, apply, kubectl

NAMESPACE = "simulated"

HOST, PORT = f"issuer.{NAMESPACE}", 8443

ISSUER, AUDIENCE = f"https://{HOST}:{PORT}/", "headrace"

TRUSTED = "/etc/issuer/ca.crt"
"""Path of the authority's certificate in the services' pods."""

SERVE = """
import functools, http.server, ssl
serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory="/srv/keys")
server = http.server.ThreadingHTTPServer(("", 8443), serve)
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain("/srv/tls/issuer.crt", "/srv/tls/issuer.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def issue_certificate(folder: Path) -> None:
    """Create the issuer's certificate in `folder`, and its authority's `ca.crt`."""
    folder.mkdir(exist_ok=True)
    Authority(folder, "issuers").issue("issuer", workload=x509.DNSName(HOST))


def trust_issuer(namespace: str, folder: Path) -> dict[str, Any]:
    """Return the values with which services verify the issuer's tokens, reach it, and trust it."""
    at = {"namespace": namespace, "name": "issuer-ca"}
    apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": at, "data": {"ca.crt": (folder / "ca.crt").read_text()}}
    )
    trust = {
        "env": [{"name": "SSL_CERT_FILE", "value": TRUSTED}],
        "volumes": [{"name": "issuer", "configMap": {"name": "issuer-ca"}}],
        "volumeMounts": [{"name": "issuer", "mountPath": str(Path(TRUSTED).parent), "readOnly": True}],
        "egress": [{"to": [{"namespaceSelector": {"matchLabels": {"name": NAMESPACE}}}], "ports": [{"port": PORT}]}],
    }
    issuer = {"jwksUrl": f"{ISSUER}jwks.json", "issuer": ISSUER, "audience": AUDIENCE}
    return {"jwt": issuer, **dict.fromkeys(("orchestrator", "memory", "tools"), trust)}


def publish_keys(folder: Path, **keys: Any) -> None:
    """Make the issuer publish exactly these keys, by id."""
    at = {"namespace": NAMESPACE, "name": "issuer"}
    published = jwks(*(jwk(key, key_id) for key_id, key in keys.items())).decode()
    files = {name: (folder / name).read_text() for name in ("issuer.crt", "issuer.key")}
    stop_issuer()  # its volume would be updated only after about a minute
    container = {
        "name": "issuer",
        "image": IMAGE,
        "args": ["python", "-c", SERVE],
        "volumeMounts": [{"name": "keys", "mountPath": "/srv/keys"}, {"name": "tls", "mountPath": "/srv/tls"}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    volumes = [{"name": "keys", "configMap": {"name": "issuer"}}, {"name": "tls", "secret": {"secretName": "issuer"}}]
    pod = {"containers": [container], "volumes": volumes, "enableServiceLinks": False}
    pod |= {"automountServiceAccountToken": False}
    service = {"clusterIP": "None", "selector": {"app": "issuer"}, "ports": [{"port": PORT}]}
    apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": at, "data": {"jwks.json": published}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": at, "stringData": files},
        {"apiVersion": "v1", "kind": "Pod", "metadata": at | {"labels": {"app": "issuer"}}, "spec": pod},
        {"apiVersion": "v1", "kind": "Service", "metadata": at, "spec": service},
    )
    kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", "pod/issuer", "--timeout=300s")


def stop_issuer() -> None:
    kubectl("-n", NAMESPACE, "delete", "pod", "issuer", "--ignore-not-found", "--grace-period=1")

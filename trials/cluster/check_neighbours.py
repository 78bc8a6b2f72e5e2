"""Reachability between pods: enforcement of the network policies, and a second installation with the same
authority.
"""

import json
import time
from collections.abc import Generator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.issuing import RSA
from tests.support.issuing import token as make_token
from trials.cluster.installs import SERVICES, SIMULATOR, Install, install_prod, remove_prod
from trials.cluster.issuer import AUDIENCE, ISSUER, publish_keys, stop_issuer
from trials.cluster.kube import HOST, apply, await_true, kubectl, run_cluster

PORTS = {"facade": 8080, "orchestrator": 7001, "llm-gateway": 7002, "memory": 7003, "tools": 7004}

ARROWS = {
    "facade": {"orchestrator", "memory", "tools"},
    "orchestrator": {"orchestrator", "llm-gateway", "memory", "tools"},
    "llm-gateway": set[str](),
    "memory": {"llm-gateway"},
    "tools": {"llm-gateway", "memory"},
}
"""Allowed calls, as drawn in docs/architecture.md; the facade's own port is open to all that may connect to it."""

OTHER = rsa.generate_private_key(65537, 2048)
"""Key of another issuer, and later the same issuer's next key."""

ROTATION_S = 150.0
"""Time for each of three orchestrators to refetch the keys, at different moments."""

CONNECT = """
import json, socket, sys
def is_open(host, port):
    try:
        socket.create_connection((host, port), timeout=3).close()
    except OSError:
        return False
    return True
print(json.dumps([name for name, host, port in json.loads(sys.argv[1]) if is_open(host, port)]))
"""

CALL = """
import sys, grpc
read = lambda name: open(f"/run/tls/{name}", "rb").read()
credentials = grpc.ssl_channel_credentials(read("ca.crt"), read("tls.key"), read("tls.crt"))
options = [("grpc.ssl_target_name_override", "headrace-memory")]
channel = grpc.secure_channel(sys.argv[1] + ":7003", credentials, options)
call = channel.unary_unary("/headrace.v1.MemoryService/ListChats")
metadata = [("x-headrace-tenant", "acme"), ("x-headrace-user", "ada")]
try:
    call(b"", metadata=metadata, timeout=20)
    print("OK")
except grpc.RpcError as error:
    print(error.code().name)
"""


def address(install: Install, service: str) -> str:
    return install.pods(service)[0]["status"]["podIP"]


def reach(namespace: str, pod: str, targets: list[tuple[str, str, int]]) -> set[str]:
    """Return the targets to which the pod can connect."""
    command = ("exec", pod, "--", "python", "-c", CONNECT, json.dumps(targets))
    return set(json.loads(kubectl("-n", namespace, *command).splitlines()[-1]))


def pod_name(install: Install, service: str) -> str:
    return install.pods(service)[0]["metadata"]["name"]


def targets_in(install: Install) -> list[tuple[str, str, int]]:
    served = [(name, address(install, name), port) for name, port in PORTS.items()]
    return served + [(f"{name} {port}", address(install, name), port) for name in SERVICES for port in (7000, 9464)]


def test_services_reach_those_that_they_call_and_nobody_else(prod: Install) -> None:
    targets = [item for item in targets_in(prod) if item[0] != "facade"]
    found = {service: reach(prod.namespace, pod_name(prod, service), targets) for service in SERVICES}
    # A pod always reaches itself, regardless of policies.
    own = {service: {service, f"{service} 7000", f"{service} 9464"} for service in SERVICES}
    assert {service: item - own[service] for service, item in found.items()} == {
        service: ARROWS[service] - own[service] for service in SERVICES
    }


def test_others_of_the_cluster_reach_the_edge_alone(prod: Install) -> None:
    assert reach(SIMULATOR, "simulator", targets_in(prod)) == {"facade"}


@pytest.fixture(scope="module")
def second(prod: Install) -> Generator[Install]:
    # With the values that change most of the pods.
    install = install_prod("second", issuer=True)
    yield install
    remove_prod(install)


def test_a_second_installation_is_one_of_its_own(prod: Install, second: Install) -> None:
    for install in (prod, second):
        status, body = install.ask()
        assert (status, '"type":"run.complete"' in body) == (200, True)
    targets = targets_in(prod)
    assert reach("second", pod_name(second, "orchestrator"), targets) == set()
    assert reach("second", pod_name(second, "facade"), targets) == set()


def test_tokens_of_an_issuer_are_taken_and_no_others(second: Install) -> None:
    publish_keys(second.operator.folder / "issuer", first=RSA)
    good = sign("first", RSA)
    status, body = second.ask(token=good)
    assert (status, '"type":"run.complete"' in body) == (200, True), body
    # Memory verifies the token itself; chats asked with the key belong to the same tenant but another user.
    assert second.list_chats(50, good)[0] == 200
    assert second.list_chats(50, good)[1].isdisjoint(second.list_chats(50)[1])
    refused = {
        "another audience": sign("first", RSA, aud="others"),
        "another issuer": sign("first", RSA, iss="https://login.example/"),
        "expired": sign("first", RSA, exp=int(time.time()) - 60),
        "another's signature": sign("first", OTHER),
        "an unknown key": sign("second", OTHER),
    }
    assert {name: second.ask(token=item)[0] for name, item in refused.items()} == dict.fromkeys(refused, 401)
    assert {name: second.list_chats(1, item)[0] for name, item in refused.items()} == dict.fromkeys(refused, 401)


def test_keys_are_rotated_while_services_run(second: Install) -> None:
    folder = second.operator.folder / "issuer"
    publish_keys(folder, first=RSA)
    before, after = sign("first", RSA), sign("second", OTHER)
    assert second.ask(token=before)[0] == 200
    stop_issuer()
    assert second.ask(token=before)[0] == 200, "its keys are known"
    publish_keys(folder, second=OTHER)
    # Each orchestrator looks for an unknown key once in 30 s; afterwards none accepts the withdrawn one.
    await_true("the new key is taken", lambda: ask_often(second, after) == {200}, ROTATION_S)
    await_true("the old key is refused", lambda: ask_often(second, before) == {401}, ROTATION_S)


def sign(key_id: str, key: Any, **changed: Any) -> str:
    given = {"iss": ISSUER, "aud": AUDIENCE, "sub": "grace", "exp": int(time.time()) + 3600}
    return make_token(key, "RS256", key_id, **(given | changed))


def ask_often(install: Install, token: str) -> set[int]:
    """Return the statuses of several questions, which reach all orchestrators in turn."""
    return {install.ask(token=token)[0] for _ in range(6)}


def test_what_is_said_is_encrypted_where_the_values_say_so(prod: Install, second: Install) -> None:
    for install in (prod, second):
        assert install.ask("What time is it in Ouagadougou?")[0] == 200
    dump = "pg_dump -h {} -U headrace {} | grep -ci ouagadougou || true"
    found = [run_cluster("enter", "sh", "-c", dump.format(HOST, item.namespace)).strip() for item in (prod, second)]
    assert (found[0] != "0", found[1]) == (True, "0")


def test_with_one_authority_the_other_installation_is_a_stranger(prod: Install, second: Install) -> None:
    """The other installation is refused even without network policies."""
    for install in (prod, second):
        apply(open_network(install.namespace))
    try:
        assert call_memory(second, second) == "OK"
        assert call_memory(second, prod) == "UNAUTHENTICATED"
        assert call_memory(prod, second) == "UNAUTHENTICATED"
    finally:
        for install in (prod, second):
            install.kubectl("delete", "networkpolicy", "open")


def open_network(namespace: str) -> dict[str, object]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "open", "namespace": namespace},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [{}], "egress": [{}]},
    }


def call_memory(caller: Install, owner: Install) -> str:
    """Return the status of a call from an orchestrator of `caller` to memory of `owner`."""
    pod = pod_name(caller, "orchestrator")
    command = (
        "exec",
        pod,
        "-c",
        "orchestrator",
        "--",
        "python",
        "-c",
        CALL,
        f"headrace-memory.{owner.namespace}.svc.cluster.local",
    )
    return caller.kubectl(*command).split()[-1]

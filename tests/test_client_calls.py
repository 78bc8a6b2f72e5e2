"""Both clients have the same calls, with one for each RPC whose contract names a call."""

from inspect import Parameter, isfunction, signature

import pytest

from headrace import client
from headrace.contract import RPCS
from headrace.sync import client as sync_client


def list_calls(kind: type[object]) -> dict[str, list[tuple[str, object, object]]]:
    """Return each method's parameters: name, kind, default."""
    methods = {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}
    return {
        name: [
            (parameter.name, parameter.kind, parameter.default)
            for parameter in [*signature(method).parameters.values()][1:]
        ]
        for name, method in methods.items()
        if isfunction(method)
    }


def test_both_clients_have_the_same_calls() -> None:
    assert list_calls(client.Client) == list_calls(sync_client.Client)


def test_each_call_of_the_contract_is_a_method() -> None:
    names = [rpc.client.name for rpc in RPCS.values() if rpc.client is not None]
    assert len(set(names)) == len(names)
    assert {*names} <= list_calls(client.Client).keys()


def test_arguments_are_those_of_the_contract() -> None:
    by_position, by_name = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    calls = list_calls(client.Client)
    assert calls["place_hold"][0][0] == "user"
    assert ("reason", by_name, Parameter.empty) in calls["place_hold"]
    assert calls["attach"] == [("run_id", by_position, Parameter.empty), ("last_seq", by_position, 0)]
    assert ("n", by_name, None) in calls["fork"]
    assert [name for name, _, _ in calls["schedules"]] == ["scope", "user"], "pages are the client's own affair"


def test_a_missing_or_unknown_argument_is_a_type_error() -> None:
    with sync_client.Client("127.0.0.1:1") as headrace:
        for wrong in ({}, {"run_id": "r", "nonsense": 1}):
            with pytest.raises(TypeError, match=r"run_id|nonsense"):
                headrace.run(**wrong)  # pyright: ignore[reportCallIssue, reportArgumentType] - that is what is tried

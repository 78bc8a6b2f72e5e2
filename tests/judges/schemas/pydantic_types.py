"""Argument types of tools, whose JSON Schemas pydantic generates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address, IPv6Network
from pathlib import Path
from re import Pattern
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from annotated_types import Ge, Len, MultipleOf
from pydantic import (
    AnyUrl,
    AwareDatetime,
    Base64Bytes,
    BaseModel,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    HttpUrl,
    Json,
    PastDate,
    PositiveInt,
    RootModel,
    SecretStr,
    StringConstraints,
    TypeAdapter,
)
from typing_extensions import TypedDict  # pydantic wants it before Python 3.12


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: int = 0


class Address(TypedDict, total=False):
    street: str
    number: int


@dataclass
class Window:
    width: Annotated[int, Ge(1)]
    title: str = ""


class Person(BaseModel):
    name: str
    born: date | None = None


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    person: Person
    others: list[Person] = []


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str = Field(alias="dogName")


class Names(RootModel[list[str]]):
    pass


TYPES: dict[str, Any] = {
    "str": str,
    "str of lengths": Annotated[str, StringConstraints(min_length=1, max_length=9)],
    "pattern": Annotated[str, Field(pattern=r"^[a-z]+(-[a-z]+)*$")],
    "int": int,
    "positive": PositiveInt,
    "float within": Annotated[float, Field(gt=0, lt=1)],
    "multiple": Annotated[int, MultipleOf(5)],
    "bool": bool,
    "None": None,
    "bytes": bytes,
    "Base64Bytes": Base64Bytes,
    "Decimal": Decimal,
    "Decimal of places": Annotated[Decimal, Field(max_digits=8, decimal_places=2)],
    "datetime": datetime,
    "AwareDatetime": AwareDatetime,
    "date": date,
    "PastDate": PastDate,
    "time": time,
    "timedelta": timedelta,
    "UUID": UUID,
    "Path": Path,
    "Pattern": Pattern[str],
    "AnyUrl": AnyUrl,
    "HttpUrl": HttpUrl,
    "IPv4Address": IPv4Address,
    "IPv6Network": IPv6Network,
    "SecretStr": SecretStr,
    "ByteSize": ByteSize,
    "Json": Json[list[int]],
    "Any": Any,
    "Literal": Literal["a", 1, None],
    "Enum": Colour,
    "IntEnum": Level,
    "optional": int | None,
    "union": int | str | list[float],
    "discriminated": Annotated[Cat | Dog, Discriminator("kind")],
    "list": list[int],
    "list of lengths": Annotated[list[int], Len(1, 3)],
    "set": set[str],
    "frozenset": frozenset[int],
    "Sequence": Sequence[int],
    "tuple": tuple[int, str],
    "tuple of any length": tuple[int, ...],
    "empty tuple": tuple[()],
    "dict": dict[str, int],
    "dict of patterns": dict[Annotated[str, Field(pattern=r"^x-")], int],
    "NamedTuple": Point,
    "TypedDict": Address,
    "dataclass": Window,
    "model": Person,
    "model that forbids more": Strict,
    "model that takes more": Open,
    "recursive model": Tree,
    "RootModel": Names,
}


def make_schemas() -> dict[str, Any]:
    """Return the JSON Schema of each type by name."""
    return {f"pydantic: {name}": TypeAdapter(kind).json_schema() for name, kind in TYPES.items()}

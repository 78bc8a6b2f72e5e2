"""mcp.json: the MCP servers, in the format that other MCP clients also read (docs/reference/mcp-json.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel
from yarl import URL

from headrace.regular_files import read_regular_text
from services.runtime.files.refused_files import describe_problems, load_config_json
from services.runtime.net.allow_list import AllowList, parse_allow_list

FILE_BYTES_MAX = 1024 * 1024
"""Maximum size of the file; people write it by hand."""

SERVERS_MAX = 64
"""Maximum servers of a file: each has a connection, and a stdio server two processes."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
"""Name of a server, which prefixes the names of its tools and is part of a metadata key."""


_VARIABLE = re.compile(r"(?P<scheme>[\w-]+ )?(?:env:(?P<name>\w+)|\$\{(?:env:)?(?P<braced>\w+)\})")
"""A variable, alone or after a word, as in the requests of tools files, or as other MCP clients write it."""


class Sampling(BaseModel):
    """Limits for a server's questions to the agent's model."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Maximum length of an answer, in tokens."""

    calls: Annotated[int, Field(ge=1, le=100)] = 5
    """Questions per attempt of a call; after a person's answer the call continues as another attempt."""


class Root(BaseModel):
    """A folder announced to a server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: Annotated[str, Field(pattern=r"^file:///[^\s]*$", max_length=2_000)]
    """Sent to the server verbatim; not accessed here."""

    name: str = ""
    """A name for people."""


class OAuth(BaseModel):
    """How users authorize Headrace at a server (OAuth 2.1, authorization code with PKCE)."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)

    redirect_url: Annotated[
        str, Field(pattern=r"^(https://|http://(127\.0\.0\.1|localhost)[:/])[^\s#]+$", max_length=2_000)
    ]
    """Where browsers return to: the facade's `/console/authorized.html`, at its public address, or your own page that
    calls CompleteAuthorization."""

    scope: str = ""
    """Requested scopes, separated by spaces; empty: those that the server names."""

    client_id: str = ""
    """Headrace's client id at the authorization server, if registered by hand. Empty: its metadata document is used, or
    else it registers itself."""

    client_secret: Annotated[str, Field(repr=False)] = ""
    """The secret of that registration, if it has one; `env:NAME` as in `headers`."""

    client_metadata_url: str = ""
    """An https address at which you serve Headrace's client id metadata document; used if the authorization server
    supports one."""

    hosts: Annotated[tuple[str, ...], Field(max_length=32)] = ()
    """Hosts, host:port and networks outside the public web where the authorization server may be, such as `sso.corp`.
    The server's own `url`, host and port, needs no entry."""

    @field_validator("hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        parse_allow_list(",".join(hosts))
        return hosts


class Server(BaseModel):
    """Permissions of a server of any kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampling: Sampling | None = None
    """Lets the server ask the agent's model during a call (text only; always the agent's own model). The run's budget
    pays for it, and the run's log has a notice SAMPLING. `{}` grants the defaults."""

    elicitation: bool = False
    """Lets the server ask the user during a call: a gate of the run, with a form or an address to visit, which waits as
    long as other gates do."""

    roots: Annotated[tuple[Root, ...], Field(max_length=32)] = ()
    """Folders to announce if the server asks for roots."""

    start_timeout_ms: Annotated[int, Field(ge=1_000, le=600_000, alias="startTimeoutMs")] = 120_000
    """Maximum time in milliseconds for the server to start, or be reached, and to initialize. The other servers
    continue in the meantime, and after 20 s the log reports that it is slow."""

    resources: bool = False
    """Offers two more tools, `<server>__list_resources` and `<server>__read_resource`, if the server has resources."""

    @property
    def may_ask(self) -> bool:
        """Whether it may ask anything during a call."""
        return self.sampling is not None or self.elicitation or bool(self.roots)


class Stdio(Server):
    """A server run as a child process."""

    type: Literal["stdio"] = "stdio"
    """Always `stdio`; optional, and accepted because other MCP clients' files contain it."""

    command: Annotated[str, Field(min_length=1)]
    """The program. Without a slash it is searched next to the service's own Python, then in PATH. It runs outside the
    sandbox: name only programs that you trust."""

    args: tuple[str, ...] = ()
    """Its arguments."""

    env: dict[str, str] = {}
    """Its whole environment in addition to PATH, HOME and LANG. A value `env:NAME` or `${NAME}` is taken from the tools
    service's environment, and a word before it is kept; if that variable is not set, the server is refused."""

    cwd: str = ""
    """The folder it runs in, relative to the file's folder; empty: the file's folder."""


class Http(Server):
    """A server reached over streamable HTTP."""

    type: Literal["http", "streamable-http", "streamable_http", "streamableHttp"] = "http"
    """Any of the names for the same transport; optional, and accepted because other MCP clients' files contain it."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+([/?][^\s#]*)?$")]
    """Its address, without user name or password."""

    headers: dict[str, str] = {}
    """Headers of every request; variables as in `env` above: `Bearer env:NAME`. A user's own credential, sent with a
    query as `x-mcp-<server>-authorization`, replaces Authorization in that user's calls."""

    oauth: OAuth | None = None
    """Users authorize Headrace at the server: a call with response 401 opens a gate with the address. Requires
    HEADRACE_TOOLS_SECRETS_KEY."""

    @property
    def allow(self) -> AllowList:
        """Hosts outside the public web that its users' authorization may reach."""
        granted = parse_allow_list(",".join(self.oauth.hosts if self.oauth is not None else ()))
        own = URL(self.url)
        return replace(granted, hosts=granted.hosts | {((own.raw_host or "").lower().rstrip("."), own.port)})


Settings = Stdio | Http

_FORMS: dict[str, type[Stdio | Http]] = {"command": Stdio, "url": Http}


@dataclass(frozen=True, slots=True)
class McpFile:
    """The servers of mcp.json."""

    servers: dict[str, Settings]
    problems: dict[str, str]
    """Reasons for refusing servers, by name; the others are used."""


class BadMcpFile(Exception):
    """The file is refused as a whole; the text explains it."""


def read_servers(path: Path, env: Mapping[str, str]) -> McpFile:
    """Return the servers of the file, none without a file. Raises BadMcpFile."""
    servers: dict[str, Settings] = {}
    problems: dict[str, str] = {}
    for name, stated in _read_entries(path).items():
        try:
            servers[name] = _parse_server(name, stated, path.parent, env)
        except ValidationError as error:
            form = _FORMS["command" if "command" in stated else "url"]
            problems[name] = "\n".join(describe_problems(error, form))
        except ValueError as error:
            problems[name] = str(error)
    return McpFile(servers, problems)


def _read_entries(path: Path) -> dict[str, Any]:
    try:
        stated = load_config_json(read_regular_text(path, FILE_BYTES_MAX))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise BadMcpFile(str(error)) from error
    except OSError as error:
        raise BadMcpFile(f"cannot be read: {error.strerror}") from error
    entries = stated.get("mcpServers") if isinstance(stated, dict) else None
    if not isinstance(entries, dict):
        raise BadMcpFile('mcpServers: an object is expected: {"mcpServers": {…}}')
    if len(entries) > SERVERS_MAX:
        raise BadMcpFile(f"mcpServers: at most {SERVERS_MAX} servers")
    return entries


def _parse_server(name: str, stated: Any, folder: Path, env: Mapping[str, str]) -> Settings:
    if not _NAME.fullmatch(name):
        raise ValueError("a server's name has 1 to 32 letters, digits, _ or -")
    kinds = [kind for kind in _FORMS if isinstance(stated, dict) and kind in stated]
    if len(kinds) != 1:
        raise ValueError("either command or url is expected")
    settings = _FORMS[kinds[0]].model_validate(stated)
    if isinstance(settings, Http):
        headers = _fill_from_environment("headers", settings.headers, env)
        # A line end after a mounted secret is no part of a header.
        filled: dict[str, Any] = {"headers": {name: value.strip() for name, value in headers.items()}}
        if settings.oauth is not None:
            secret = _fill_from_environment("oauth", {"clientSecret": settings.oauth.client_secret}, env)
            filled["oauth"] = settings.oauth.model_copy(update={"client_secret": secret["clientSecret"].strip()})
        return settings.model_copy(update=filled)
    cwd = str((folder / settings.cwd).absolute())
    return settings.model_copy(update={"env": _fill_from_environment("env", settings.env, env), "cwd": cwd})


def _fill_from_environment(field: str, values: dict[str, str], env: Mapping[str, str]) -> dict[str, str]:
    filled: dict[str, str] = {}
    for key, value in values.items():
        if (match := _VARIABLE.fullmatch(value)) is not None:
            name = match["name"] or match["braced"]
            if name not in env:
                raise ValueError(f"{field}.{key}: {name} is not set in the service's environment")
            value = (match["scheme"] or "") + env[name]
        filled[key] = value
    return filled

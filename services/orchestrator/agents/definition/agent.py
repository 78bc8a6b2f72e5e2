"""A valid agent file, and the settings in force for each stage of its modes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2
from services.orchestrator.agents.definition.modes import MODES, STAGES, ModeName, Stage
from services.orchestrator.agents.definition.parts import (
    Budget,
    Memory,
    ModelConfig,
    Output,
    OutputConfig,
    Part,
    Policy,
    Positive,
    ToolConfig,
    Verify,
    with_tool_policy,
)
from services.orchestrator.agents.definition.sections import (
    AS_STAGE,
    Custom,
    PlanExecute,
    React,
    Remote,
    Section,
    StageSettings,
)
from services.orchestrator.agents.prompts import check_placeholders

Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=128)]


RESERVED_KEYS = frozenset({"default", "auto"})
"""Values of a query's agentKey that have a special meaning, so no agent may use them as its key."""

DEPTH_MAX = 5
"""Default depth of sub-agents and recursive plans."""


class Models(Part):
    """Models that replace the agent's in all stages; fields that are left out stay the agent's."""

    vision: ModelConfig | None = None
    """Answers when the query has images and the agent's own model cannot see them, or when the chat prefers
    `vision`."""

    code: ModelConfig | None = None
    """Answers when the chat prefers `code` (modelPref in a query's params)."""


class Canary(Part):
    """A trial of the file with part of the chats; the others stay on an earlier version of the agent."""

    share: Annotated[float, Field(ge=0, le=1)]
    """Share of the chats that get the file, 0 to 1. The chat's id decides, so a chat keeps the version it has; raising
    the share only adds chats."""

    stable_version: Positive
    """Number of the version that the other chats get; `headrace agents versions` lists them. If it does not exist, all
    chats get the file, and the orchestrator logs that."""


class Definition(Part):
    """An agent. A query may ask for another mode than `mode` if the file has its section."""

    key: Key
    """Names the agent in queries; 1 to 128 letters, digits, `_`, `.` or `-`. Left out, the file's name without `.json`.
    `default` and `auto` are reserved."""

    name: str = ""
    """Name for people."""

    icon: str | None = None
    """Icon for front ends, for example `emoji:🧭`; passed through unchanged."""

    description: str = ""
    """The agent's abilities in one sentence; the router of agentKey `auto` and agents that may call this one choose by
    it."""

    tags: tuple[str, ...] = ()
    """Labels for people. The tag `hidden` keeps the agent from the router of agentKey `auto`."""

    publish: frozenset[Literal["a2a", "ag-ui", "mcp"]] = frozenset()
    """Protocols through which facades offer the agent to other programs: `a2a`, `ag-ui`, `mcp`. Left out, none, unless
    a facade publishes all agents over a protocol (HEADRACE_FACADE_PUBLISH)."""

    questions: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...], Field(max_length=20)] = ()
    """Questions that people may begin with, at most 20; MCP clients offer them as prompts."""

    mode: ModeName
    """How the agent works. The mode's section is required: plain, react, planExecute with plan and execute, custom,
    which names one of the operator's modes, or remote, which names an agent elsewhere. With both react and planExecute,
    a query's deepThink picks the mode."""

    model_config_: ModelConfig | None = Field(default=None, alias="modelConfig")
    """The model of all stages; a stage's own overrides it field by field."""

    tool_config: ToolConfig | None = None
    """The tools of the stages that work (plain, react, execute). Left out, only tools that are always available."""

    tool_policy: Policy = "ALLOW"
    """DISALLOW shows models no tools. REQUIRE fails the run with TOOL_REQUIRED when the first turn and two reminders
    brought no call; in mode CUSTOM the mode's code decides instead. Also accepted: toolChoice NONE, AUTO, REQUIRED."""

    output: Output | OutputConfig = OutputConfig()
    """How the agent gives its answer; a plain string sets its `form`."""

    verify: Verify = "NONE"
    """SECOND_PASS_FIX keeps the first answer as a draft; a second turn checks it and gives the streamed answer."""

    models: Models = Models()
    """Models for images and for code."""

    skills: tuple[str, ...] = ()
    """Ids or names of the skills that the agent may use. Left out or empty, all skills."""

    subagents: tuple[Key, ...] = ()
    """Keys of agents to call with call_subagent. If it has any, or lists `call_subagent` in toolConfig, the agent may
    also call an unnamed sub-agent with its own model and backend tools."""

    mentionable: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=128)], ...], Field(max_length=1000)] = ()
    """Tools and agents that a user may add to those of toolConfig and subagents: tools by `@name` in a message or by
    `persistentTools`, agents by `@key`. `@core` and `@enabled` mean all usable tools of those tiers."""

    budget: Budget = Budget()
    """Limits of a run."""

    memory: Memory = Memory()
    """How much of the chat a model is shown."""

    chat_title: Literal["first_words", "model"] = "first_words"
    """Title of the chats that the agent begins. `model` has its model write one from the user's message once the first
    run is complete, within the rest of the run's budget. Until then, or if that fails, the title is the message's first
    words."""

    on_new_message: Literal["queue", "answer_default", "cancel"] = "queue"
    """What a new message does to a run of the chat that waits only for people: `queue` makes the message wait for the
    run, `cancel` ends the run and its gates. A run with a call in progress continues, and may receive a message with
    `whenBusy`. `answer_default` expires all open gates: approvals are rejected, or get their `onExpiry`, and forms and
    questions expire. The run then continues, and the message waits for it."""

    record: bool = False
    """Whether to record each run for a cassette: up to 16 MiB of its input and output, kept as long as its chat."""
    canary: Canary | None = None
    """Tries the file with a share of the chats first. Left out, all have it."""

    plain: Section | None = None
    """The section of mode ONESHOT."""

    react: React | None = None
    """The section of mode REACT."""

    plan_execute: PlanExecute | None = None
    """The section of mode PLAN_EXECUTE."""

    custom: Custom | None = None
    """The section of mode CUSTOM."""

    remote: Remote | None = None
    """The section of mode REMOTE."""

    hash: str = ""
    """First 16 hex digits of the SHA-256 of the file's bytes, logged with each run. Not for files."""

    _source: bytes = PrivateAttr(default=b"{}")
    _tenant: str = PrivateAttr(default="")

    @model_validator(mode="before")
    @classmethod
    def _accept_aliases(cls, given: Any) -> Any:
        return with_tool_policy(given)

    @model_validator(mode="after")
    def _check_whole(self) -> Definition:
        if problems := list(dict.fromkeys(self._find_problems())):
            raise ValueError("\n".join(problems))
        return self

    def _find_problems(self) -> Iterator[str]:
        """Yield problems of the definition as a whole, each as field and rule."""
        modes = ("REACT", "PLAN_EXECUTE") if self.react and self.plan_execute else ()
        for mode in {self.mode: None, **dict.fromkeys(modes)}:
            for stage in MODES[mode].stages:
                yield from self._check_stage(stage)
        if self.limits.unknown_price == "MAX_TOKENS" and self.limits.max_tokens is None:
            yield "budget.unknownPrice: MAX_TOKENS needs budget.maxTokens"
        if self.key in RESERVED_KEYS:
            yield f"key: {self.key!r} is reserved"
        if self.mode == "REMOTE":
            yield from self._find_unusable()

        for name, settings in self.named_stages.items():
            if not settings.model.provider_key or not settings.model.model:
                yield f"modelConfig: providerKey and model must be set, here or in custom.stages.{name}.modelConfig"

    def _find_unusable(self) -> Iterator[str]:
        """Yield each field that a REMOTE agent cannot have, with the rule."""
        given = {"toolConfig": self.tool_config, "skills": self.skills, "subagents": self.subagents}
        for field in (name for name, value in given.items() if value):
            yield f"{field}: must be left out in mode REMOTE: the remote agent has tools of its own"
        if self.verify != "NONE":
            yield "verify: must be NONE in mode REMOTE: no model is asked here"
        if self.output_config.form != "PLAIN":
            yield "output: must be PLAIN in mode REMOTE: no model is asked here"
        model = self.model_config_ or ModelConfig()
        if model.provider_key and model.model:
            return
        if self.chat_title == "model":
            yield "chatTitle: model needs a modelConfig"
        if self.memory.extract == "after_run":
            yield "memory.extract: after_run needs a modelConfig"

    def _check_stage(self, stage: Stage) -> Iterator[str]:
        section = self._find_section(stage.name)
        if section is None:
            yield f"{stage.section.partition('.')[0]}: is required for mode {self.mode}"
            return
        settings = self.stage_settings(stage.name)
        if stage.name != "remote" and not (settings.model.provider_key and settings.model.model):
            yield f"modelConfig: providerKey and model must be set, here or in {stage.section}.modelConfig"
        if section.empties_tools and stage.uses_tools and settings.policy == "REQUIRE":
            yield f"{stage.section}.toolConfig: must not be null where toolPolicy is REQUIRE"

    def __copy__(self) -> Self:
        """Return a copy without the cached values, because `model_copy` may change the fields they derive from."""
        copied = super().__copy__()
        for name in CACHED:
            vars(copied).pop(name, None)
        return copied

    def with_deep_think(self, deep_think: int) -> Definition:
        """Return the agent in the mode that a query's deepThink asks for: REACT for 0, else PLAN_EXECUTE.

        Raises:
            InvalidRequest: The file does not have both sections.
        """
        if self.react is None or self.plan_execute is None:
            raise InvalidRequest.of("deepThink", "needs an agent with the sections react and planExecute")
        return self.model_copy(update={"mode": "PLAN_EXECUTE" if deep_think else "REACT"})

    def with_query(self, query: agent_pb2.QueryRequest) -> Definition:
        """Return the agent as the query needs it: in the mode of its deepThink, with the model and prompt of its trial.

        Raises:
            InvalidRequest: The agent lacks a section this needs.
            UnknownPlaceholder: The trial's prompt has an unknown placeholder.
        """
        agent = self.with_deep_think(query.deep_think) if query.HasField("deep_think") else self
        return agent.with_trial(query.trial) if query.HasField("trial") else agent

    def with_trial(self, trial: agent_pb2.AgentTrial) -> Definition:
        """Return the agent with another model in every stage, or another prompt; raises as `with_query`."""
        if self.mode == "REMOTE":
            raise InvalidRequest.of("trial", "needs an agent that asks a model; this one is remote")
        agent = self
        if trial.model or trial.provider_key:
            agent = self._replace_model(ModelConfig(provider_key=trial.provider_key or None, model=trial.model or None))
        if not trial.HasField("system_prompt"):
            return agent
        name = {"ONESHOT": "plain", "REACT": "react", "CUSTOM": "custom"}.get(agent.mode, "")
        section: Section | None = getattr(agent, name) if name else None
        if section is None:
            raise InvalidRequest.of("trial.systemPrompt", "needs an agent that does not plan: its stages have one each")
        check_placeholders(trial.system_prompt)
        return agent.model_copy(update={name: section.model_copy(update={"system_prompt": trial.system_prompt})})

    def with_model(self, name: str) -> Definition | None:
        """Return the agent with one of its `models` in every stage, or None if it has no such model."""
        model: ModelConfig | None = getattr(self.models, name) if name in MODEL_NAMES else None
        if model is None or model == ModelConfig():
            return None
        return self._replace_model(model)

    def _replace_model(self, model: ModelConfig) -> Definition:
        plan = self.plan_execute
        stages = {name: _with_model(getattr(plan, name), model) for name in ("plan", "execute", "summary") if plan}
        return self.model_copy(
            update={
                "model_config_": model.merge_over(self.model_config_ or ModelConfig()),
                "plain": _with_model(self.plain, model),
                "react": _with_model(self.react, model),
                "plan_execute": plan and plan.model_copy(update=stages),
                "custom": _with_model(self.custom, model),
            }
        )

    @property
    def source(self) -> bytes:
        """The agent's file as JSON, with its key filled in, sorted keys and no white space."""
        return self._source

    def take_source(self, source: bytes) -> None:
        """Set what `source` returns; only the parser calls this."""
        self._source = source

    @property
    def tenant(self) -> str:
        """The agent's tenant; empty for an agent of the operator's files, which all tenants share."""
        # Read directly, because pydantic finds a private attribute through two functions, and a run asks a dozen times.
        return (self.__pydantic_private__ or {})["_tenant"]

    def take_tenant(self, tenant: str) -> Definition:
        """Set what `tenant` returns; only readers of the store call this."""
        self._tenant = tenant
        return self

    @cached_property
    def primary(self) -> StageSettings:
        """Settings of the mode's first stage."""
        return self.stage_settings(MODES[self.mode].stages[0].name)

    @property
    def output_config(self) -> OutputConfig:
        return OutputConfig(form=self.output) if isinstance(self.output, str) else self.output

    @property
    def stages(self) -> list[StageSettings]:
        return [self.stage_settings(stage.name) for stage in MODES[self.mode].stages]

    @cached_property
    def working(self) -> StageSettings:
        """Settings of the stage that uses the ordinary tools."""
        return self.stage_settings(MODES[self.mode].working_stage.name)

    @cached_property
    def working_tools(self) -> tuple[str, ...]:
        """Names of the tools of the stages that use the ordinary ones."""
        named = self.named_stages.values() if self.mode == "CUSTOM" else ()
        return tuple(dict.fromkeys(name for settings in (self.working, *named) for name in settings.tools))

    def stage_settings(self, stage: str) -> StageSettings:
        """Return the settings of a stage in the file; the sections of each mode have been checked."""
        return self._settings_by_stage[stage]

    @cached_property
    def _settings_by_stage(self) -> dict[str, StageSettings]:
        sections = ((stage, self._find_section(stage)) for stage in STAGES)
        return {stage: self._make_settings(stage, section) for stage, section in sections if section is not None}

    @cached_property
    def named_stages(self) -> dict[str, StageSettings]:
        """Settings of the additional stages that a custom mode's code selects by name."""
        if self.custom is None:
            return {}
        return {name: self._make_settings("work", self._fill_stage(own)) for name, own in self.custom.stages.items()}

    def _fill_stage(self, own: Section) -> Section:
        """Return a named stage with its missing fields taken from the section `custom`."""
        base = self.custom
        assert base is not None, "only the section custom has named stages"
        given = own.model_fields_set
        left = {name: getattr(base, name) for name in base.model_fields_set & Section.model_fields.keys() - given}
        filled = own.model_copy(update=left)
        if own.model_config_ is not None and base.model_config_ is not None:
            filled = filled.model_copy(update={"model_config_": own.model_config_.merge_over(base.model_config_)})
        return filled

    def _make_settings(self, stage: str, section: Section) -> StageSettings:
        policy = section.tool_policy or self.tool_policy
        # An empty toolConfig overrides nothing, an explicit null empties the list.
        has_own_tools = section.empties_tools or bool(section.tool_config and section.tool_config.model_fields_set)
        config = section.tool_config if has_own_tools else self.tool_config
        base = self.model_config_ or ModelConfig()
        prompt = section.system_prompt
        if stage == "summary" and not prompt and self.plan_execute is not None:
            prompt = self.plan_execute.execute.system_prompt
        react = self.react if stage == "react" else None
        own = {"react": self.react, "execute": self.plan_execute}.get(stage)
        return StageSettings(
            stage=stage,
            system_prompt=prompt,
            model=section.model_config_.merge_over(base) if section.model_config_ else base,
            tools=config.names if config and policy != "DISALLOW" else (),
            may_use_tools=policy != "DISALLOW" and not section.empties_tools,
            policy=policy,
            output=section.output or self.output_config.form,
            verify=(section.verify or self.verify) if STAGES[stage].gives_answer else "NONE",
            steps_max=(own and own.max_steps) or self.limits.max_steps or STAGES[stage].steps_max,
            parallel_tool_calls=react is not None and react.parallel_tool_calls,
            examples=section.examples,
        )

    @cached_property
    def may_use_tools(self) -> bool:
        """Whether any stage of the file, in any mode, may see ordinary tools."""
        return any(settings.may_use_tools for settings in self._all_settings)

    @cached_property
    def listed_tools(self) -> frozenset[str]:
        """Names of the tools that any stage of the file lists, in any mode, in lower case."""
        return frozenset(name.casefold() for settings in self._all_settings for name in settings.tools)

    @cached_property
    def _all_settings(self) -> list[StageSettings]:
        return [*self._settings_by_stage.values(), *self.named_stages.values()]

    @property
    def settings_by_path(self) -> list[tuple[str, StageSettings]]:
        """Settings of all stages of the file, in any mode, each with the path of the field that sets its model."""
        found: list[tuple[str, StageSettings]] = []
        for name, settings in self._settings_by_stage.items():
            section = self._find_section(name)
            has_own = section is not None and section.model_config_ is not None
            found.append((f"{STAGES[name].section}.modelConfig" if has_own else "modelConfig", settings))
        return [*found, *((f"custom.stages.{name}.modelConfig", own) for name, own in self.named_stages.items())]

    @property
    def tools(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.working_tools, *(name for each in self.stages for name in each.tools)]))

    @cached_property
    def limits(self) -> Budget:
        """The agent's budget, overridden field by field by its stages' sections; later stages win."""
        own: dict[str, Any] = {"max_depth": self.budget.max_depth or self.memory.recap.max_recursion_depth}
        sections = [self._find_section(stage.name) for stage in MODES[self.mode].stages]
        if self.mode == "CUSTOM" and self.custom is not None:
            sections += self.custom.stages.values()
        for section in sections:
            if section is not None and section.budget is not None:
                own |= section.budget.model_dump(exclude_unset=True)
        return self.budget.model_copy(update=own)

    @property
    def depth_max(self) -> int:
        return self.limits.max_depth or DEPTH_MAX

    def _find_section(self, stage: str) -> Section | None:
        if stage in ("oneshot", "react"):
            return self.plain if stage == "oneshot" else self.react
        if stage in ("work", "custom"):
            return self.custom
        if stage == "remote":
            return AS_STAGE if self.remote is not None else None
        if self.plan_execute is None:
            return None
        own: Section | None = getattr(self.plan_execute, stage)
        return own or self.plan_execute.execute


MODEL_NAMES = frozenset(Models.model_fields)

CACHED = tuple(name for name, value in vars(Definition).items() if isinstance(value, cached_property))
"""Values derived from the fields, cached because a run reads them some twenty times."""


def _with_model(section: Section | None, model: ModelConfig) -> Section | None:
    """Return the section with its own model, if it has one, overridden by `model`."""
    if section is None or section.model_config_ is None:
        return section
    return section.model_copy(update={"model_config_": model.merge_over(section.model_config_)})

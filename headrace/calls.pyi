"""Made of the protos by packaging/client/make_stubs.py."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager

from headrace.run_stream import ChatStream, RunStream
from headrace.v1 import (
    agent_pb2,
    audit_pb2,
    common_pb2,
    data_pb2,
    gates_pb2,
    keys_pb2,
    limits_pb2,
    llm_pb2,
    memory_pb2,
    operator_pb2,
    schedule_pb2,
    spend_pb2,
    tools_pb2,
    webhook_pb2,
)

class Calls:
    def ask(
        self,
        message: str,
        *,
        request_id: str | None = None,
        chat_id: str | None = None,
        agent_key: str | None = None,
        role: str | None = None,
        references: Iterable[common_pb2.Reference] = (),
        params: str | None = None,
        scene: agent_pb2.Scene | None = None,
        stream: bool | None = None,
        deep_think: int | None = None,
        on_disconnect: str | None = None,
        when_busy: str | None = None,
        client_tools: Iterable[agent_pb2.ClientTool] = (),
        output_format: common_pb2.OutputFormat | None = None,
        tool_choice: str | None = None,
        parallel_tool_calls: bool | None = None,
        history: Iterable[agent_pb2.EarlierMessage] = (),
        progress: Iterable[agent_pb2.EarlierMessage] = (),
        record: bool | None = None,
        agent_version: int | None = None,
        trial: agent_pb2.AgentTrial | None = None,
        from_program: bool | None = None,
        chat_key: str | None = None,
    ) -> AbstractAsyncContextManager[RunStream]:
        """Start a run and stream it; the first event goes out before any model is called (but for agent_key auto).

        Effect: the query is committed to the chat log, then the run starts. The run goes on when the caller leaves,
        unless on_disconnect is cancel. A chat has one running run; when_busy says what happens to a second.
        Order: see AgentDelta. The stream ends after exactly one terminal event (run.complete, run.cancel,
        run.error): a failure after the first event is a run.error, never a status.
        Errors before the first event: INVALID_REQUEST; NOT_FOUND (agent); CHAT_BUSY with the busy runId when
        when_busy is reject; QUEUE_FULL when 8 queries of the chat are waiting; OVERLOADED; DISK_FULL; NOT_FOUND for
        a chat that is not the caller's nor shared with the caller; PERMISSION_DENIED for one that the caller may
        only read, and for when_busy interrupt and rollback where they would end another user's run and the chat is
        not the caller's.
        Idempotency: the same chat_id and request_id again attaches to the first run, from its beginning, however
        busy the chat is.
        """

    def attach(self, run_id: str, last_seq: int = 0) -> AbstractAsyncContextManager[RunStream]:
        """Stream what a run did after last_seq and, while it runs, what it does.

        What is committed may come as snapshots; a block that is open comes as its start and one delta with all its
        text so far; a call whose arguments were complete by last_seq is not told again. Folding (a start or
        snapshot of a known id replaces the block, a delta appends, attempt.reset removes what came after from_seq)
        gives the same result as one uninterrupted reader. Changes nothing; may be repeated and left at will.
        Errors: NOT_FOUND (run; also at the end of a stream whose reader the chat is shared with no more);
        OUT_OF_RANGE for a last_seq beyond what the run has sent.
        """

    def follow_chat(self, chat_id: str, cursor: str | None = None) -> AbstractAsyncContextManager[ChatStream]:
        """Follow a chat: what its runs did after a cursor, what they do, and each run that begins later.

        Runs come one after the other, in the order in which they began; the events of each come as Attach sends
        them. Compactions between runs come between theirs. A run that a revert has taken back is left out; a revert
        itself is no event: load the chat again after one. A caller that comes back with the cursor of the last
        event it has gets each later event once, whatever was stopped or killed meanwhile. The stream ends when the
        service stops. Changes nothing; may be repeated and left at will.
        Errors: NOT_FOUND (chat; also at the end of a stream whose reader the chat is shared with no more);
        INVALID_REQUEST (cursor); OUT_OF_RANGE for a cursor beyond what its run has sent.
        """

    async def submit(
        self,
        run_id: str,
        payload: str,
        *,
        tool_id: str | None = None,
        approval_id: str | None = None,
        request_id: str | None = None,
        chat_id: str | None = None,
        view_id: str | None = None,
        holder: str | None = None,
    ) -> agent_pb2.SubmitResponse:
        """Give a waiting run what a person decided: a frontend tool's payload or an approval.

        Effect: the first submit wins and is committed before it is answered; one that comes before the wait has
        started is kept. A second is answered `duplicate`, a late one `expired`, one that nobody waits for
        `unmatched`: none of these is an error. Others than the requester may answer where the gate's rule says so.
        Where it wants several, each approval is committed and answered `voted` until the last one; a user counts
        once, one reject rejects, and an edit begins the count anew: all must approve the same arguments.
        Errors: INVALID_REQUEST (also edited arguments that the tool's schema or a rule refuses: the gate stays
        open); NOT_FOUND (run); PERMISSION_DENIED (the gate's rule does not let the caller answer, or not with these
        arguments).
        """

    async def cancel(self, run_id: str, *, mode: str | None = None) -> agent_pb2.CancelResponse:
        """Stop a run and everything below it.

        Effect: with mode now the provider's connection and running tools are closed within 500 ms, open calls get
        typed results, what was said so far is committed and the run ends with run.cancel; the chat takes a new
        message right after. after_step lets the current turn and its tools finish first. The answer comes when the
        cancel is under way, not when the run has ended; attach to see the end.
        Idempotent: a run that has ended is answered with its state.
        Errors: NOT_FOUND (run); PERMISSION_DENIED for a run of another user in a chat of another.
        """

    async def steer(self, run_id: str, message: str, *, request_id: str | None = None) -> agent_pb2.SteerResponse:
        """Tell a running agent something; the model sees it at its next turn.

        Effect: committed before it is answered; if the run ends first it becomes the next run's query. Never lost.
        Errors: INVALID_REQUEST; NOT_FOUND (run); PERMISSION_DENIED while it is another user's run. Idempotent by
        request_id.
        """

    def compact(self, chat_id: str) -> AbstractAsyncContextManager[RunStream]:
        """Compact a chat by hand, as a run of stage compact of its last agent, and stream its events.

        The same as a Query whose message is /compact; there a hint for the summary may follow the word.
        With nothing to gain: compaction.fail NOTHING_TO_COMPACT, then run.complete.
        Errors: NOT_FOUND (chat); CHAT_BUSY.
        """

    async def agents(self, tag: str | None = None) -> list[agent_pb2.Agent]:
        """List the agents in force, ordered by key.

        Changes nothing. Complete: there is no paging.
        """

    async def agent_versions(
        self, agent_key: str, *, before: int = 0, page_size: int = 0
    ) -> list[agent_pb2.AgentVersion]:
        """List the versions of an agent that have had runs or were published, the newest first.

        Changes nothing. Versions of an agent that is gone are listed too: the tenant's own, or where it has had
        none the operator's. Errors: NOT_FOUND (no version); INVALID_REQUEST.
        """

    async def agent_version(self, agent_key: str, version: int = 0) -> agent_pb2.GetAgentVersionResponse:
        """Get a version of an agent: its file, those of the agents below it, and the tools and skills they may see.

        Changes nothing. Errors: NOT_FOUND; PERMISSION_DENIED without the scope `operate`.
        """

    async def diff_agent_versions(
        self, agent_key: str, from_version: int = 0, to_version: int = 0
    ) -> list[agent_pb2.AgentChange]:
        """Say what is different between two versions of an agent, field by field.

        Changes nothing. Errors: NOT_FOUND; PERMISSION_DENIED without the scope `operate`.
        """

    async def validate_agent(
        self, definition: str, agent_key: str | None = None, *, for_tenant: bool = False
    ) -> agent_pb2.ValidateAgentResponse:
        """Say everything that is wrong with an agent's definition, each with field and rule.

        Changes nothing, and stores nothing. It is held against the format of agent files as a file would be, and
        against what there is now: tools, skills and agents that it names and nobody has are warnings, as a run goes
        on without them. With for_tenant it is held against what the tenant's own agents may have, too, as PutAgent
        holds it.
        Errors: PERMISSION_DENIED without the scope `publish`.
        """

    async def put_agent(
        self, definition: str, agent_key: str | None = None, *, expected_version: int | None = None
    ) -> agent_pb2.PutAgentResponse:
        """Bring an agent of the caller's tenant in force: a new one, or another definition of one that is there.

        Effect: a definition with errors is answered with all of them, as ValidateAgent with for_tenant finds them,
        and nothing is stored. One without gets its version, and has all runs that begin from then on; on other
        replicas within 2 s. Runs that are there, queued and waiting ones included, keep the version that they are
        pinned to. Other tenants never see it.
        Fence: expected_version is the version that the caller has seen in force, 0 for no agent; absent takes
        whatever is there.
        Idempotent: the definition that is in force is answered as it is. Recorded in the audit log as agent.put.
        Errors: VERSION_CONFLICT (another version is in force); KEY_TAKEN (the operator has an agent of this key in
        a file, and files win: HEADRACE_ORCHESTRATOR_AGENTS_PRECEDENCE); INVALID_REQUEST; QUOTA_EXCEEDED with 200
        agents of the tenant or 8 MiB of definitions, 10,000 agents of all tenants, or 10,000 versions of the agent;
        PERMISSION_DENIED without the scope `publish`.
        """

    async def delete_agent(self, agent_key: str, *, expected_version: int | None = None) -> None:
        """Take an agent of the caller's tenant out of force.

        Effect: new queries of it are refused with NOT_FOUND, on other replicas within 2 s. No run ends: those that
        are queued, at work, waiting for people or taken over go on with the version that they are pinned to. Its
        versions stay, so that PutAgent can bring one back. Recorded in the audit log as agent.removed.
        Errors: NOT_FOUND, also where it was deleted before; VERSION_CONFLICT as PutAgent; PERMISSION_DENIED without
        the scope `publish`.
        """

    async def stored_agents(self) -> list[agent_pb2.StoredAgent]:
        """List the agents that the caller's tenant has stored, ordered by key: also those that are not in force, with
        why.

        Changes nothing. Complete: there is no paging.
        Errors: PERMISSION_DENIED without the scope `publish`.
        """

    async def agent_definition(self, agent_key: str, version: int = 0) -> agent_pb2.GetAgentDefinitionResponse:
        """Get the definition of an agent of the caller's tenant, as PutAgent was given it, or that of an earlier
        version.

        Changes nothing. The text of an earlier version is JSON with sorted keys. Agents of files are not found
        here.
        Errors: NOT_FOUND; PERMISSION_DENIED without the scope `publish`.
        """

    async def agent_problems(self) -> list[agent_pb2.AgentProblem]:
        """List the files of the agents' folder that have a problem, ordered by name; then agents of the caller's
        tenant that are not in force, or that have the key of a file.

        Changes nothing. Each replica answers for the folder as it has read it.
        Errors: PERMISSION_DENIED without the scope `operate`.
        """

    async def identity(self) -> agent_pb2.GetIdentityResponse:
        """Say who calls, and what for their credential is good.

        Changes nothing. Without authentication everybody is the user `default` with all scopes.
        """

    async def chat_runs(self, chat_id: str, *, page_size: int = 0, page_token: str = "") -> agent_pb2.ListRunsResponse:
        """List the runs of a chat, oldest first, with what all of them have cost.

        Changes nothing. Pages are stable: a chat only gets runs at its end.
        Errors: NOT_FOUND (chat); INVALID_REQUEST for a page_token that this service has not given.
        """

    async def context(
        self, chat_id: str, *, agent_key: str | None = None, run_id: str | None = None
    ) -> agent_pb2.GetContextResponse:
        """Say what fills the window of a chat's next request, and what has left it.

        Without run_id it is the request that the chat's next question would begin with, of the agent that would
        answer it, before the question's own text; with run_id that of the run as it stands. Counted as a request
        is; a part that memory cannot show as it was said is told with why. Changes nothing, asks no model.
        Errors: NOT_FOUND (chat, agent, run); OVERLOADED without a valid agent file since the start;
        CONTEXT_LENGTH_EXCEEDED as a turn would fail with it.
        """

    async def cassette(self, run_id: str) -> list[str]:
        """Get the recording of an ended run, as the lines of a cassette: what it was asked, what its peers and people
        told it and when, and its events. docs/reference/cassette.md has the format.

        Changes nothing. Complete over its pages, which are stable. Without secrets: no headers and keys were kept,
        and what looks like a credential is masked. What the operator has written is there with the scope `operate`
        alone: definitions of agents, the code of modes, and files such as approvals.yaml.
        Errors: NOT_FOUND (run; also one that was not recorded, or could not be: the message says why);
        INVALID_REQUEST for a page_token that this service has not given, or a run that has not ended.
        """

    async def run(self, run_id: str) -> agent_pb2.Run:
        """Get a run's state, usage and what is left of its budget.

        Changes nothing. Errors: NOT_FOUND.
        """

    async def audit(
        self, event: str | None = None, page_token: str = "", page_size: int | None = None
    ) -> audit_pb2.ListAuditResponse:
        """List what was done in the tenant, the newest first.

        Changes nothing. Pages are stable: nothing is ever put between lines.
        Errors: INVALID_REQUEST for a page_token that this service has not given.
        """

    def export_audit(
        self, after_seq: int = 0, *, follow: bool = False
    ) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Read the tenant's log in order, as it is stored, and with follow what is appended from now on.

        Effect: that it was exported is itself a line, the last one of an export without follow: a file that does
        not end with audit.exported is cut. With follow it ends with the caller's leaving, or the service's end;
        lines come within a second or two, in order, each once, and after_seq goes on where a reader was.
        Errors: INVALID_REQUEST; OUT_OF_RANGE for an after_seq that the log has not come to.
        """

    async def verify_audit(self) -> audit_pb2.VerifyAuditResponse:
        """Check the tenant's log as it is stored: each line, its place in the chain, and its end.

        Changes nothing. What is wrong is no error: `problem` names the first place. Who can write to the store can
        make a whole new log; the hash of the last line, kept elsewhere, shows that.
        """

    def export_data(self, user: str = "") -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Read everything that is kept of a user as one tar archive.

        Everybody may read their own data; another user's needs the scope admin. The archive has chats (logs as they
        are stored, and their blobs), the user's runs in others' chats, files of workspaces, facts, schedules,
        grants, gates, keys (what ListKeys says), webhooks of runs, what was spent, and which MCP servers the user
        has authorized; no secret is in it. The last entry is manifest.json: each entry's name, size and SHA-256. An
        archive without it is cut. Over HTTP the answer is the archive itself (application/x-tar).
        Effect: the audit log has data.exported, before the first byte. It is no snapshot: what is written meanwhile
        may be in it or not, each entry by itself is whole.
        Errors: PERMISSION_DENIED; OVERLOADED where a service is away.
        """

    async def erase_data(
        self, *, user: str = "", tenant: str = "", reason: str = "", request_id: str = ""
    ) -> data_pb2.Erasure:
        """Erase everything that is kept of a user, or of the caller's whole tenant.

        Effect: the erasure is stored when this returns, and is worked on until its receipt is written, through
        restarts of every service. New runs, files, facts, schedules, keys and shares of those users are refused
        meanwhile (ERASING); their runs are ended first. Chats of theirs go with their logs, blobs, files, shares
        and index rows; facts, schedules and webhooks of runs go; keys are revoked, but for the one that asks. Their
        runs in others' chats are replaced by redacted lines, which leave the chat valid. What they have spent stays
        as numbers, under a name of nobody. Of a tenant go also its agents and webhooks, and what it has spent.
        Webhooks of runs that are gone, and deliveries that name the user, go too. What a lost key keeps anybody
        from reading goes unread; the receipt names what stays, as nobody can say whose it is.
        Idempotent: while an erasure of the same goes on, and for the same request_id, that one is returned; one
        that is repeated later has nothing left to erase, and says so.
        Errors: INVALID_REQUEST; HELD where the user or the tenant is held; a held chat stays, and the receipt names
        it.
        """

    async def erasure(self, erasure_id: str) -> data_pb2.Erasure:
        """Get an erasure; its receipt, once it is done.

        Changes nothing. Errors: NOT_FOUND.
        """

    async def erasures(self) -> list[data_pb2.Erasure]:
        """List the tenant's erasures, the newest first, at most 1,000.

        Changes nothing. Receipts are kept: they name the user, and nothing of what was erased.
        """

    async def place_hold(
        self, *, user: str = "", chat_id: str = "", tenant: str = "", reason: str, request_id: str = ""
    ) -> data_pb2.Hold:
        """Hold what is kept of a user, of the tenant, or in a chat: nothing of it is deleted or erased, by nobody.

        Effect: from now on retention passes it by, and deleting its chats, facts and schedules is answered HELD; of
        a user also deleting others' chats in which the user has runs. What is being deleted at this moment may
        still go. Idempotent with a request_id.
        Errors: INVALID_REQUEST; ERASING where it is being erased; QUOTA_EXCEEDED beyond 10,000 holds of a tenant.
        """

    async def holds(self, *, include_ended: bool = False) -> list[data_pb2.Hold]:
        """List the tenant's holds, the newest first.

        Changes nothing.
        """

    async def release_hold(self, hold_id: str) -> data_pb2.Hold:
        """End a hold. Idempotent: one that has ended is answered as it is. Errors: NOT_FOUND."""

    async def gates(
        self,
        *,
        scope: str | None = None,
        agent_key: str | None = None,
        kind: str | None = None,
        risk: str | None = None,
        older_than_ms: int | None = None,
        page_size: int = 0,
        page_token: str = "",
    ) -> gates_pb2.ListGatesResponse:
        """List the gates that wait, the one that waits longest first.

        Changes nothing. A page follows its token's gate: one that closes meanwhile is on no later page, one that
        opens is on the last. Complete, but for gates that were opened by earlier versions.
        Errors: INVALID_REQUEST for a page_token that this service has not given; PERMISSION_DENIED (scope tenant).
        """

    def watch_gates(
        self,
        *,
        scope: str | None = None,
        agent_key: str | None = None,
        kind: str | None = None,
        risk: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[gates_pb2.WatchGatesResponse]]:
        """Follow the gates that ListGates lists with the same filters: those that wait, then each change of one.

        Changes nothing. First come list_begin, a row for each gate that waits, and list_end: what the reader has
        shown before and is not among them waits no more. Then comes a row for each gate that opens, for each step
        (a claim, a vote, a delegation), and for each that closes, with its state; who may see it is looked at for
        each row. Changes of one gate that follow at once may come as one row, which is how it stands; none is
        missed. A reader who is more than 1,000 changed gates behind gets list_begin again, and so does everybody
        after a time in which the store could not be reached. Nothing is resumed: the stream ends when the service
        stops, and whoever opens it again gets the list again. The caller's leaving ends it. Errors:
        INVALID_REQUEST; PERMISSION_DENIED (scope tenant).
        """

    async def gate(self, run_id: str, gate_id: str) -> gates_pb2.Gate:
        """Get a gate, open or closed, with the arguments of its call.

        Changes nothing. A gate stays known as long as its chat. It is there for the requester, for who may answer
        it, and with the scope `operate`, which sees no arguments without `read_content`. Errors: NOT_FOUND (run,
        gate); INDEX_INCOMPLETE.
        """

    async def answer_gate(
        self, run_id: str, gate_id: str, payload: str, *, request_id: str | None = None, holder: str | None = None
    ) -> gates_pb2.AnswerGateResponse:
        """Answer a gate; the same as Submit with its id.

        Effect: the first answer wins and is committed, with the caller's identity, before it is answered; the run
        goes on with it. Where the rule wants several, each approval before the last is committed and answered
        `voted`; once one of them has edited the arguments, the others approve by edit with the same ones. A second
        is answered `duplicate`, a late one `expired`, one for an id that is no gate of the run `unmatched`: none of
        these is an error. Idempotent by request_id. The id of a call that the query's caller carries out itself is
        taken too.
        Errors: INVALID_REQUEST, also for a payload that does not fit the gate's result_schema, and for edited
        arguments that the tool's schema or a rule refuses: the gate stays open; NOT_FOUND (run, also of who may not
        see the gate); PERMISSION_DENIED (its rule does not let the caller answer, or not with these arguments);
        CLAIMED (another client has claimed it).
        """

    async def claim_gate(
        self, run_id: str, gate_id: str, holder: str, *, lease_ms: int | None = None
    ) -> gates_pb2.ClaimGateResponse:
        """Claim an open gate for one client, which others then see being answered.

        Effect: until claimed_until nobody else answers or claims it, but for an approval's reject, which is taken
        from all who may answer; a line of the log and an event (gate.step). The same user and holder claim it again
        to prolong it, or after a reload: a claim with more than half of the lease left is answered as it stands, so
        a client that renews often writes no more than two lines in a lease. Gates that nobody claims are answered
        without.
        Errors: INVALID_REQUEST; NOT_FOUND (run, gate, also of who may not see it); PERMISSION_DENIED (its rule does
        not let the caller answer); CLAIMED (another client has it), with claimedBy and until.
        """

    async def release_gate(self, run_id: str, gate_id: str, holder: str) -> bool:
        """Give a claim up before its time is over.

        Effect: others may claim and answer at once; a line of the log and an event (gate.step). Nothing happens
        where the caller and holder have no claim. Errors: INVALID_REQUEST; NOT_FOUND (run, gate).
        """

    async def delegate_gate(
        self, run_id: str, gate_id: str, to: Iterable[str], *, note: str | None = None, request_id: str | None = None
    ) -> str:
        """Pass an open gate on: others may answer it too, and find it with ListGates.

        Effect: they are added to the gate's answerers, a line of the log and an event (gate.step); who passes it on
        stays one of them. Four eyes holds: the requester may not answer, whatever roles it is passed to. Idempotent
        by request_id.
        Errors: INVALID_REQUEST; NOT_FOUND (run, gate, also of who may not see it); PERMISSION_DENIED (its rule does
        not let the caller answer); QUEUE_FULL (too much has happened to the gate).
        """

    async def ask_back(self, run_id: str, gate_id: str, note: str, *, request_id: str | None = None) -> str:
        """Ask the requester about an open gate, or reply as the requester; it stays open.

        Effect: a line of the log and an event (gate.step, `asked_back`) with the note; GetGate has it in `steps`.
        It reaches people, not the model. Idempotent by request_id.
        Errors: INVALID_REQUEST; NOT_FOUND (run, gate, also of who may not see it); PERMISSION_DENIED (the caller is
        neither the requester nor one who may answer); QUEUE_FULL (too much has happened to the gate).
        """

    async def grants(
        self, *, scope: str | None = None, chat_id: str | None = None, page_size: int = 0, page_token: str = ""
    ) -> gates_pb2.ListGrantsResponse:
        """List the grants that are in force: approvals that hold for later calls of a run or chat (GrantMake).

        Changes nothing. Those that the caller has made and those of the caller's chats, the oldest first; with the
        scope `tenant` all of the tenant. Errors: INVALID_REQUEST for a page_token that this service has not given;
        PERMISSION_DENIED (scope tenant).
        """

    async def revoke_grant(self, chat_id: str, grant_id: str) -> str:
        """End a grant before its time.

        Effect: a line of the chat's log. When it is acknowledged, every call that is judged from then on is asked
        about again; one that has been judged before, which the log tells by grant.use or within moments will, still
        runs. The chat's owner may, everybody who has made it by an answer or vote, and who has the scope `operate`.
        Idempotent.
        Errors: INVALID_REQUEST; NOT_FOUND (chat, grant, also of who may not see it); LOG_DAMAGED.
        """

    def export_gates(
        self,
        chat_id: str | None = None,
        *,
        since: int | None = None,
        before: int | None = None,
        with_content: bool = False,
    ) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Export what has happened at gates, for an audit: each step of each gate and grant, in the order in which it
        was committed.

        Changes nothing. Each message is a line of a file whose lines have a hash chain; docs/guides/people.md
        describes them. The first line says what was asked for, the last one, `end`, how many steps there are:
        without it the file is not whole. Of a chat: its owner's, and with the scope `operate` any of the tenant;
        without a chat, all of the tenant that are not deleted, for credentials with the scope `operate`. It says
        who has done what to which call, and nothing of what was said in the chat; with_content adds the calls'
        arguments, notes and payloads, for credentials with the scope `read_content`. The stream ends behind the
        last line. Errors: INVALID_REQUEST, also where there are more than 100,000 steps: ask for less time;
        NOT_FOUND (chat); PERMISSION_DENIED (scope); INDEX_INCOMPLETE without a chat.
        """

    async def create_key(
        self,
        name: str,
        user: str,
        *,
        key_id: str = "",
        kind: str = "",
        roles: Iterable[str] = (),
        scopes: Iterable[str] = (),
        expires_at: int | None = None,
        runs_max: int | None = None,
        requests_per_minute: int | None = None,
    ) -> keys_pb2.CreateKeyResponse:
        """Make a key of a user of the tenant.

        Effect: the caller's own key counts at once with the services that are shown it, another user's when it is
        confirmed. The response alone has its text. Idempotent by key_id, which the caller may choose: the same key
        again is answered with what is stored, without its text.
        Errors: INVALID_REQUEST, also for another key's id; PERMISSION_DENIED, also for scopes that the caller's own
        credential lacks, and for roles that the caller lacks and HEADRACE_MEMORY_KEY_ROLES does not name;
        QUOTA_EXCEEDED when the tenant has 1,000 keys, or all tenants together have 100,000.
        """

    async def confirm_key(self, key_id: str) -> keys_pb2.ConfirmKeyResponse:
        """Confirm a key that was made in the name of a user: by that user, or by another admin than who has made it.

        Effect: by another admin the key begins to count, as it is. By its user it gets a new text, which the
        response alone has; the old one counts no more, and what it has open ends. So its makers do not know it any
        more, and count as its user no longer. The caller's own credential must not be one that a maker of the key
        has made. Idempotent for an admin; its user gets another text each time, also of a key that was confirmed
        before.
        Errors: NOT_FOUND, also for another user's key without the scope admin; PERMISSION_DENIED; INVALID_REQUEST
        for a key that is revoked.
        """

    async def keys(self, user: str | None = None, state: str | None = None) -> list[keys_pb2.ApiKey]:
        """List the tenant's keys, the oldest first: also those that ended within the last 30 days.

        Changes nothing. Keys of the file are not among them.
        """

    async def key(self, key_id: str) -> keys_pb2.ApiKey:
        """Get a key.

        Changes nothing. Errors: NOT_FOUND.
        """

    async def update_key(
        self,
        key_id: str,
        *,
        name: str | None = None,
        roles: Iterable[str] = (),
        no_roles: bool = False,
        scopes: Iterable[str] = (),
        expires_at: int | None = None,
        runs_max: int | None = None,
        requests_per_minute: int | None = None,
        disabled: bool | None = None,
    ) -> keys_pb2.ApiKey:
        """Change a key: what is absent stays as it is, and a list replaces the one before.

        Effect: calls that begin within 5 s have the new roles, scopes and limits; those that are open keep the old
        ones, unless the key is disabled, which ends them. A key whose makers are others than its user, and that
        gets more scopes or roles, must be confirmed again.
        Errors: NOT_FOUND; INVALID_REQUEST, also for a key that is revoked; PERMISSION_DENIED, also for scopes that
        the caller's own credential lacks, and for new roles as CreateKey.
        """

    async def revoke_key(self, key_id: str) -> keys_pb2.ApiKey:
        """End a key for ever; UpdateKey disables it for a time.

        Idempotent: one that is revoked is answered as it is. Errors: NOT_FOUND.
        """

    async def suspend_user(self, user: str) -> keys_pb2.SuspendedUser:
        """Suspend a user of the tenant, whatever credentials they have.

        Effect: within 5 s every call of theirs ends as CREDENTIAL_ENDED, by a key of the file, a stored one, a
        token or a session, on every replica, and by a key that they have made for another and so know. What they
        have open ends. Their runs are cancelled. A run that only waits for people stays, gates and all, and is
        cancelled if it goes on. Their schedules are held and begin no runs, also not by posts to /hooks. Nothing of
        theirs is deleted.
        Idempotent: one who is suspended is answered as they are. The user need not be known here: tokens are not.
        Errors: INVALID_REQUEST, also for the caller's own user; QUOTA_EXCEEDED as CreateKey.
        """

    async def release_user(self, user: str) -> None:
        """Release a user who is suspended.

        Effect: within 5 s their credentials count again, as far as they have not ended, and their schedules begin
        runs again, but for the times that have passed. Runs that were cancelled stay so. Idempotent. Errors:
        NOT_FOUND for one who was never suspended.
        """

    async def suspended_users(self) -> list[keys_pb2.SuspendedUser]:
        """List the tenant's users who are suspended, the longest first.

        Changes nothing.
        """

    async def chats(
        self, *, page_size: int = 0, page_token: str = "", scope: str | None = None
    ) -> memory_pb2.ListChatsResponse:
        """List chats, the last changed first: the caller's own, or those that others share with the caller, to read or
        to take part.

        Changes nothing. Pages are stable for chats that do not change meanwhile.
        Errors: INVALID_REQUEST for a page_token that this service has not given.
        """

    async def rename_chat(self, chat_id: str, title: str, *, if_untitled: bool = False, request_id: str = "") -> str:
        """Give a chat another title.

        Effect: a line; chat_name stays as it is. The title that it had is not found by Search any more.
        Errors: NOT_FOUND; LOG_DAMAGED; INVALID_REQUEST. Idempotent by request_id.
        """

    async def delete_chat(self, chat_id: str) -> None:
        """Delete a chat with its log, workspace lines and blobs.

        Idempotent: a chat that is not there is NOT_FOUND, and nothing changes. One whose key is lost is deleted
        unread; of that only a run that somebody owns counts as unfinished, as no other comes to its end.
        Errors: NOT_FOUND; CHAT_BUSY while a run of it is unfinished.
        """

    async def fork(self, chat_id: str, *, run_id: str | None = None, n: int | None = None, request_id: str = "") -> str:
        """Make a new chat that holds the log up to a point. It is the caller's, and private; who takes part in a chat
        may copy it.

        Effect: a copy; the two go their own ways. Its runs have new ids; those that the copy does not hold to their
        end are cancelled in it. Line numbers stay. Without run_id and seq everything is copied. Idempotent by
        request_id, also when the first chat is gone by then.
        Errors: NOT_FOUND (chat, run); OUT_OF_RANGE for a line that is not there; LOG_DAMAGED; INVALID_REQUEST.
        """

    async def search(self, query: str, *, scope: str = "", limit: int = 0) -> list[memory_pb2.SearchHit]:
        """Full-text search over chats, their titles, insights and summaries, best match first; in scope all over facts
        too.

        A text matches when it holds any word of the query, and is better the more of them it holds. Where a script
        has no spaces between words, three characters in a row are one. What was reverted is not found. Changes
        nothing.
        Errors: INVALID_REQUEST.
        """

    async def remember(
        self,
        text: str,
        *,
        request_id: str = "",
        scope: str = "",
        agent_key: str = "",
        topic: str = "",
        replaces: Iterable[str] = (),
        source: memory_pb2.FactSource | None = None,
    ) -> memory_pb2.Fact:
        """Store a fact, for later chats.

        Effect: facts that it replaces, by id or because they have its topic, end now; they stay in the list as
        ended. A plan overwrites the user's plan for the same question with this agent, or their oldest one, id
        included, when 50 are stored. Idempotent by request_id, also after the fact was deleted.
        Errors: NOT_FOUND for a fact to replace that is not there; PERMISSION_DENIED for scope tenant where the
        operator does not allow it; FACTS_FULL; HELD for a plan that would overwrite one of a user on hold;
        INVALID_REQUEST.
        """

    async def facts(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        scope: str = "",
        agent_key: str = "",
        include_ended: bool = False,
    ) -> memory_pb2.ListFactsResponse:
        """List facts that the user sees, the newest first: the user's own, those about them with each agent, the
        tenant's.

        Plans are listed only by their scope. Changes nothing. Errors: INVALID_REQUEST for a page_token that this
        service has not given.
        """

    async def recall(
        self, query: str, *, agent_key: str = "", limit: int = 0, scope: str = ""
    ) -> list[memory_pb2.FactHit]:
        """Find the valid facts that a query is about, the best first; none where it is about nothing that is known.

        Words count by their stems, stop words of the query's language not at all, and a word that few facts hold
        more than one that many hold (BM25). A fact with few of the query's words gives way to those with more of
        them. Other words are found only with HEADRACE_MEMORY_FACT_EMBEDDINGS: each call is then one of that model
        (LlmService.Embed), which bills it; it takes 3 s at most, and without an answer words alone count. Changes
        nothing but the vectors that facts lack, which are stored. Plans are found only by their scope, by words
        alone, and only where the question of the plan has at least half of the query's words.
        """

    async def edit_fact(self, fact_id: str, *, text: str | None = None, topic: str | None = None) -> memory_pb2.Fact:
        """Change a fact's text or topic. The text that it had leaves the store, as after DeleteFact.

        Errors: NOT_FOUND; PERMISSION_DENIED for a tenant's fact where the operator does not allow it;
        INVALID_REQUEST.
        """

    async def delete_fact(self, fact_id: str) -> memory_pb2.Fact:
        """Delete a fact.

        Effect: text, topic and source leave the store when this is answered; a tombstone with the id and the time
        stays. The chat in which the fact was said keeps its log until it is deleted itself.
        Idempotent: a fact that is deleted already is answered as the first time.
        Errors: NOT_FOUND; PERMISSION_DENIED for a tenant's fact where the operator does not allow it.
        """

    async def checkpoints(
        self, chat_id: str, *, run_id: str = "", kind: str = "", page_size: int = 0, page_token: str = ""
    ) -> memory_pb2.ListCheckpointsResponse:
        """List a chat's checkpoints, the latest first: the places that Revert goes back to.

        One stands before each query and each step that people see. Changes nothing.
        Errors: NOT_FOUND; INVALID_REQUEST for a page_token that this service has not given.
        """

    async def revert(
        self,
        chat_id: str,
        checkpoint_id: int,
        *,
        scope: str = "",
        run_id: str = "",
        generation: int = 0,
        n: int | None = None,
        request_id: str = "",
    ) -> int:
        """Make the views show the log as it was at a checkpoint, the session state included; the log keeps everything.

        Effect: a line; nothing is deleted, and files of the workspace stay as they are. Checkpoints are before each
        query and each step that people see, with ids from 0; after a revert of scope all they go on from there.
        Runs that have not ended keep their query, whatever is reverted.
        Errors: NOT_FOUND (chat, checkpoint, run), also when the checkpoint is not before line n; CHAT_BUSY while a
        run of the chat is unfinished, with run_id and scope model while one has written steps; STALE_LEASE;
        LOG_DAMAGED. Idempotent by request_id.
        """

    async def pin(self, chat_id: str, n: int, *, remove: bool = False, request_id: str = "") -> int:
        """Pin a message of the chat, or take a pin back: a pinned message stands word for word beside every summary
        that stands for it.

        Effect: a line. The pinned texts of a chat have at most 8,000 characters together. Pinning again changes
        nothing.
        Errors: NOT_FOUND (chat, line without a text of a person or a model); OUT_OF_RANGE when there would be more
        pinned text; LOG_DAMAGED. Idempotent by request_id.
        """

    async def pins(self, chat_id: str) -> list[memory_pb2.Pin]:
        """List a chat's pinned messages, in the order of the log. Changes nothing. Errors: NOT_FOUND."""

    async def summary(self, chat_id: str) -> memory_pb2.GetSummaryResponse:
        """Get the summary that a chat's next question stands behind, as it was written or edited last. Changes
        nothing.

        A chat that was never compacted has number 0 and no text. Errors: NOT_FOUND.
        """

    async def edit_summary(self, chat_id: str, n: int, text: str, *, request_id: str = "") -> int:
        """Give a chat's summary another text.

        Effect: a line, which models are shown in the summary's place from then on; the old one stays in the log.
        The next compaction summarises the edited text.
        Errors: NOT_FOUND; ABORTED (STALE_LEASE) when n is not the chat's summary any more; LOG_DAMAGED;
        INVALID_REQUEST. Idempotent by request_id.
        """

    async def state(self, chat_id: str, context_id: str = "") -> memory_pb2.GetStateResponse:
        """Get a context's session state. Changes nothing; a context without state gives version 0 and {}.

        Errors: NOT_FOUND.
        """

    async def update_state(
        self,
        chat_id: str,
        state: str,
        expected_version: int,
        context_id: str = "",
        *,
        run_id: str = "",
        generation: int = 0,
    ) -> int:
        """Replace a context's session state, when its version is still the one expected.

        Effect: a line. A run that goes on reads what it needs again before it changes it. A revert is a change of
        every state. Errors: NOT_FOUND (chat, run); ABORTED (STALE_LEASE) when it is not; LOG_DAMAGED;
        INVALID_REQUEST.
        """

    async def tenant_run(self, run_id: str, *, include_events: bool = False) -> operator_pb2.OperatorGetRunResponse:
        """Get a run of any user of the tenant, and on request its committed events.

        Changes nothing. With the scope `read_content` events are as their user has them, and that they were read is
        logged; without it they have ids, names, numbers and states, but no texts.
        Errors: NOT_FOUND; PERMISSION_DENIED.
        """

    async def cancel_runs(
        self, run_ids: Iterable[str] = (), *, matching: operator_pb2.OperatorListRunsRequest | None = None
    ) -> operator_pb2.CancelRunsResponse:
        """Stop runs, by their ids or by a filter, at most 200 at a time.

        Effect: each is cancelled as AgentService.Cancel with mode now does, whoever owns it, as if its user had;
        the answer says for each what became of it, and the log who asked. It comes when the cancels are under way,
        not when the runs have ended. Not atomic: each run is a matter of its own. Idempotent: a run that has ended
        is answered `ended`.
        Errors: INVALID_REQUEST for neither ids nor a filter, or both; PERMISSION_DENIED; INDEX_INCOMPLETE for a
        filter.
        """

    async def providers(self) -> list[llm_pb2.ProviderHealth]:
        """Show the health of the providers in force: LlmService.ListProviders, which this asks.

        Changes nothing, and asks no provider. Of several replicas of the gateway one answers, for itself.
        Errors: PERMISSION_DENIED; OVERLOADED without a valid provider file since the start.
        """

    async def limits(self, user: str = "", *, key: str = "", agent_key: str = "") -> limits_pb2.GetLimitsResponse:
        """Get every limit that holds for a user of the tenant: its value, who said it, what is used of it, when it
        opens.

        Changes nothing. Each service answers for itself as it holds its limits now, of several replicas one; a
        service that does not answer within 5 s is named in `missing`. What other tenants have used is not shown: of
        a limit that all share, only whether it is full for this one. Not in it: limits of one agent (its own file
        has them), of the form of requests (each field's rule is in the contract), and of the sandbox for one
        command.
        Errors: NOT_FOUND for a key that is none of the tenant's; PERMISSION_DENIED.
        """

    async def replicas(self) -> list[operator_pb2.Replica]:
        """List the replicas of the orchestrator that have runs of the tenant, and the one that answers.

        Changes nothing. Known are those whose leases memory has: one without a run is seen only when it answers.
        Errors: PERMISSION_DENIED.
        """

    async def create_schedule(
        self,
        agent_key: str,
        message: str,
        *,
        schedule_id: str = "",
        name: str = "",
        cron: str = "",
        time_zone: str = "",
        once_at: int = 0,
        jitter_s: int = 0,
        chat_id: str = "",
        overlap: str = "",
        catch_up: bool = False,
        paused: bool = False,
        on_webhook: bool = False,
    ) -> schedule_pb2.Schedule:
        """Make a schedule.

        Idempotent by schedule_id, which the caller may choose: the same schedule again is answered with what is
        stored.
        Errors: INVALID_REQUEST, also when the id is another schedule's; QUOTA_EXCEEDED when the user has 1,000.
        """

    async def schedules(self, *, scope: str | None = None, user: str | None = None) -> list[schedule_pb2.Schedule]:
        """List the user's schedules, the oldest first; with the scope operate also those of all users of the tenant.

        Changes nothing. A page follows its token's schedule, also where that is deleted meanwhile. Others'
        schedules come without their names.
        Errors: INVALID_REQUEST for a page_token that this service has not given; PERMISSION_DENIED (scope tenant).
        """

    async def schedule(self, schedule_id: str) -> schedule_pb2.Schedule:
        """Get a schedule with its last firings.

        Changes nothing. With the scope operate also another user's, without its name and message.
        Errors: NOT_FOUND.
        """

    async def update_schedule(
        self,
        schedule_id: str,
        *,
        name: str | None = None,
        cron: str | None = None,
        time_zone: str | None = None,
        once_at: int | None = None,
        jitter_s: int | None = None,
        agent_key: str | None = None,
        message: str | None = None,
        chat_id: str | None = None,
        overlap: str | None = None,
        catch_up: bool | None = None,
        paused: bool | None = None,
        on_webhook: bool | None = None,
        held: bool | None = None,
    ) -> schedule_pb2.Schedule:
        """Change a schedule: what is absent stays as it is.

        Effect: where its times, its zone or its pause change, the next time is computed anew, from now on. A
        schedule that was paused has missed nothing. `held` is for the scope operate, of any user's schedule of the
        tenant; nothing else of another user's can be changed.
        Errors: NOT_FOUND; INVALID_REQUEST; PERMISSION_DENIED (held).
        """

    async def delete_schedule(self, schedule_id: str) -> None:
        """Delete a schedule; with the scope operate also another user's. Runs that it has begun go on, and their chats
        stay.

        Errors: NOT_FOUND.
        """

    async def trigger_schedule(self, schedule_id: str, request_id: str | None = None) -> schedule_pb2.Schedule:
        """Begin a run of the schedule now, beside its times; also of one that is paused.

        Answered before the run begins, which is within some seconds; the firing tells its id. Repeated before that
        it is one; behind it, too, where it has the same request_id.
        Errors: NOT_FOUND.
        """

    async def rotate_schedule_secret(self, schedule_id: str, keep_s: int | None = None) -> str:
        """Make a secret with which other systems sign what they post to /hooks/{scheduleId}: the first one, or a new
        one.

        Effect: a post that is signed with it begins a run, where the schedule says on_webhook. The secret before
        counts beside it for keep_s. Each call makes another one.
        Errors: NOT_FOUND; INVALID_REQUEST.
        """

    async def usage(
        self,
        *,
        from_day: str = "",
        to_day: str = "",
        group_by: Iterable[str] = (),
        scope: str = "",
        user: str = "",
        agent_key: str = "",
        model: str = "",
        key: str = "",
    ) -> spend_pb2.GetUsageResponse:
        """Sum up what was spent over days, grouped as asked.

        Changes nothing, and is complete for everything that a log has: a charge counts from the append that brings
        it, on the day (UTC) of that append. The sum of a run's charges is the usage that its end reports, tool
        calls aside. What a deleted chat has cost stays. Forks of chats cost nothing anew.
        Not in it: model calls of embeddings, calls that a killed process had under way, and questions after a run's
        end (facts, titles).
        Errors: INVALID_REQUEST for days or groups that are none; PERMISSION_DENIED for scope tenant without the
        scope `operate`; INDEX_INCOMPLETE while a log that may have charges of these days is not in the index.
        """

    async def complete_authorization(
        self, state: str, code: str, issuer: str | None = None, *, error: str | None = None
    ) -> tools_pb2.CompleteAuthorizationResponse:
        """Take what an authorization server has sent the user's browser back with, to the redirectUrl of mcp.json.

        Effect: the code is exchanged for tokens, which are kept, encrypted, for this user and MCP server alone, and
        used in the user's calls from now on. A state counts once, for an hour.
        Errors: NOT_FOUND (a state that is unknown, used, over, or another user's); INVALID_REQUEST (refused by the
        user or the authorization server, or its issuer is another than was asked); PROVIDER_UNAVAILABLE (it does
        not answer); OVERLOADED (the audit log cannot be written: nothing is kept); ERASING.
        """

    async def authorizations(self) -> list[tools_pb2.Authorization]:
        """List where the caller has authorized Headrace (OAuth), ordered by server.

        Changes nothing. Nobody sees another user's, and no token is ever shown.
        """

    async def revoke_authorization(self, server: str) -> bool:
        """Take the caller's authorization of an MCP server back.

        Effect: its tokens are forgotten when this returns, for all replicas, and sessions that were opened with
        them take no further call; the next call that needs it asks the user again. The authorization server is
        asked to forget them too (RFC 7009), where it has a place for that: whether it did is said, and no error.
        Errors: NOT_FOUND (the caller has not authorized this server, or has taken it back); OVERLOADED (the audit
        log cannot be written; nothing is changed).
        """

    async def create_webhook(
        self,
        url: str,
        *,
        webhook_id: str = "",
        name: str = "",
        types: Iterable[str] = (),
        agent_keys: Iterable[str] = (),
        paused: bool = False,
    ) -> webhook_pb2.CreateWebhookResponse:
        """Make a webhook. It is told of what happens from now on.

        Idempotent by webhook_id, which the caller may choose: the same webhook again is answered with what is
        stored, without its secret.
        Errors: INVALID_REQUEST, also for a URL that must not be reached and for another webhook's id;
        QUOTA_EXCEEDED when the tenant has 20.
        """

    async def webhooks(self) -> list[webhook_pb2.Webhook]:
        """List the tenant's webhooks, the oldest first.

        Changes nothing.
        """

    async def webhook(self, webhook_id: str) -> webhook_pb2.Webhook:
        """Get a webhook.

        Changes nothing. Errors: NOT_FOUND.
        """

    async def update_webhook(
        self,
        webhook_id: str,
        *,
        name: str | None = None,
        url: str | None = None,
        types: Iterable[str] = (),
        agent_keys: Iterable[str] = (),
        all_agents: bool = False,
        paused: bool | None = None,
    ) -> webhook_pb2.Webhook:
        """Change a webhook: what is absent stays as it is, and a list replaces the one before.

        Effect: what waits is delivered to the new URL. Nothing is kept for a webhook while it is paused; what
        waited before goes on afterwards.
        Errors: NOT_FOUND; INVALID_REQUEST; INDEX_INCOMPLETE, as what happened before is told by the webhook as it
        was.
        """

    async def rotate_webhook_secret(self, webhook_id: str, keep_s: int | None = None) -> str:
        """Give a webhook a new secret. The one before it signs beside it for some time, any older one no more.

        Repeated it makes another secret. Errors: NOT_FOUND; INVALID_REQUEST.
        """

    async def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook with its deliveries; what waits is not delivered any more.

        Errors: NOT_FOUND.
        """

    async def ping_webhook(self, webhook_id: str) -> webhook_pb2.Delivery:
        """Deliver an event of the type headrace.ping to a webhook, also to one that is told of nothing else.

        Answered before it is delivered; ListDeliveries tells what became of it. Repeated it is another event.
        Errors: NOT_FOUND; QUOTA_EXCEEDED while so many deliveries wait for it that it is full.
        """

    async def deliveries(
        self, webhook_id: str, state: str = "", page_size: int = 0, page_token: str = ""
    ) -> webhook_pb2.ListDeliveriesResponse:
        """List the deliveries to a webhook, the newest event first: those that wait, and those that ended within 7
        days.

        Changes nothing. Errors: NOT_FOUND; INVALID_REQUEST.
        """

    async def replay_deliveries(self, webhook_id: str, event_ids: Iterable[str] = ()) -> int:
        """Deliver again, with the same ids: events that are named and have ended, or all dead letters.

        They are behind everything that waits. Repeated, those that wait already are left alone.
        Errors: NOT_FOUND.
        """

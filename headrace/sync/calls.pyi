"""Made of the protos by packaging/client/make_stubs.py."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

from headrace.sync.blocking import ChatStream, RunStream
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
    ) -> AbstractContextManager[RunStream]:
        """Start a run and stream its events. The first event is sent before any model is called, except with agent_key
        auto.

        Effect: the query is committed to the chat log, then the run starts. The run continues when the caller
        disconnects, unless on_disconnect is cancel. A chat has one running run; when_busy decides how a second one
        is handled.
        Order: see AgentDelta. The stream ends after exactly one terminal event (run.complete, run.cancel,
        run.error): a failure after the first event is a run.error, never a status.
        Errors before the first event: INVALID_REQUEST; NOT_FOUND (agent); CHAT_BUSY with the busy runId when
        when_busy is reject; QUEUE_FULL when 8 queries of the chat are waiting; OVERLOADED; DISK_FULL; NOT_FOUND for
        a chat that neither belongs to the caller nor is shared with them; PERMISSION_DENIED for a chat that the
        caller may only read, and for when_busy interrupt and rollback if they would end another user's run in a
        chat that the caller does not own.
        Idempotency: repeating one's own chat_id and request_id attaches to the first run, from its beginning,
        however busy the chat is.
        """

    def attach(self, run_id: str, last_seq: int = 0) -> AbstractContextManager[RunStream]:
        """Stream a run's events after last_seq and, while it is running, new ones as they happen.

        Committed output may arrive as snapshots. An open block arrives as its start and one delta with all its text
        so far. A call whose arguments were complete by last_seq is not repeated. Folding (a start or snapshot of a
        known id replaces the block, a delta appends, attempt.reset removes everything after from_seq) gives the
        same result as one uninterrupted reader. Changes nothing. Callers may repeat it and disconnect at any time.
        Errors: NOT_FOUND (run; also ends a stream when the chat is no longer shared with its reader); OUT_OF_RANGE
        for a last_seq beyond the run's last event.
        """

    def follow_chat(self, chat_id: str, cursor: str | None = None) -> AbstractContextManager[ChatStream]:
        """Follow a chat: the events of its runs after a cursor, of its current runs, and of each run that begins
        later.

        Runs are sent one after another, in the order in which they began, each with the events that Attach sends.
        Compactions between runs appear between the events of those runs. Reverted runs are left out; a revert
        itself is not an event, so load the chat again after one. A caller that resumes with the cursor of its last
        event receives each later event once, even if services were stopped or killed meanwhile. The stream ends
        when the service stops. Changes nothing. Callers may repeat it and disconnect at any time.
        Errors: NOT_FOUND (chat; also ends a stream when the chat is no longer shared with its reader);
        INVALID_REQUEST (cursor); OUT_OF_RANGE for a cursor beyond its run's last event.
        """

    def submit(
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
        """Submit a person's decision to a waiting run: a frontend tool's payload or an approval.

        Effect: the first submit wins and is committed before it is acknowledged. A submit that arrives before the
        wait has started is kept. A second one is answered `duplicate`, a late one `expired`, and one that no run
        waits for `unmatched`; none of these is an error. Users other than the requester may answer if the gate's
        rule allows it. If the rule requires several approvals, each one is committed and answered `voted` until the
        last. A user counts once, one reject rejects the call, and an edit restarts the count: all must approve the
        same arguments.
        Errors: INVALID_REQUEST (also for edited arguments that the tool's schema or a rule refuses: the gate stays
        open); NOT_FOUND (run); PERMISSION_DENIED (the gate's rule does not let the caller answer, or not with these
        arguments).
        """

    def cancel(self, run_id: str, *, mode: str | None = None) -> agent_pb2.CancelResponse:
        """Stop a run and everything it started.

        Effect: with mode now, the provider's connection and running tools are closed within 500 ms, open calls get
        typed results, the output so far is committed, and the run ends with run.cancel. The chat accepts a new
        message immediately. With after_step, the current turn and its tools finish first. The reply arrives when
        the cancel is under way, before the run has ended; attach to see the end.
        Idempotent: for a run that has ended, the reply has its state.
        Errors: NOT_FOUND (run); PERMISSION_DENIED for another user's run in a chat that the caller does not own.
        """

    def steer(self, run_id: str, message: str, *, request_id: str | None = None) -> agent_pb2.SteerResponse:
        """Send a message to a running agent; the model sees it at its next turn.

        Effect: committed before it is acknowledged, and never lost: if the run ends first, the message becomes the
        next run's query.
        Errors: INVALID_REQUEST; NOT_FOUND (run); PERMISSION_DENIED if the run is another user's. Idempotent by
        request_id.
        """

    def compact(self, chat_id: str) -> AbstractContextManager[RunStream]:
        """Compact a chat on request, as a run of stage compact of its last agent, and stream the run's events.

        The same as a Query with the message /compact, which may also give a hint for the summary after the word. If
        there is nothing to compact, the events are compaction.fail NOTHING_TO_COMPACT, then run.complete.
        Errors: NOT_FOUND (chat); CHAT_BUSY.
        """

    def agents(self, tag: str | None = None) -> list[agent_pb2.Agent]:
        """List the active agents, ordered by key.

        Changes nothing. Complete: there is no paging.
        """

    def agent_versions(self, agent_key: str, *, before: int = 0, page_size: int = 0) -> list[agent_pb2.AgentVersion]:
        """List the versions of an agent, newest first. These are the versions that have had runs or were published.

        Changes nothing. Versions of a deleted agent are listed too: the tenant's own, or the operator's if the
        tenant never had one. Errors: NOT_FOUND (no version); INVALID_REQUEST.
        """

    def agent_version(self, agent_key: str, version: int = 0) -> agent_pb2.GetAgentVersionResponse:
        """Get a version of an agent: its definition, those of its sub-agents, and the tools and skills they may use.

        Changes nothing. Errors: NOT_FOUND; PERMISSION_DENIED without the scope `operate`.
        """

    def diff_agent_versions(
        self, agent_key: str, from_version: int = 0, to_version: int = 0
    ) -> list[agent_pb2.AgentChange]:
        """Compare two versions of an agent, field by field.

        Changes nothing. Errors: NOT_FOUND; PERMISSION_DENIED without the scope `operate`.
        """

    def validate_agent(
        self, definition: str, agent_key: str | None = None, *, for_tenant: bool = False
    ) -> agent_pb2.ValidateAgentResponse:
        """Validate an agent's definition and report all of its problems, each with field and rule.

        Changes nothing and stores nothing. The definition is checked against the format of agent files and against
        the current tools, skills and agents: missing ones are warnings, because a run continues without them. With
        for_tenant it is also checked against the limits of the tenant's own agents, as in PutAgent.
        Errors: PERMISSION_DENIED without the scope `publish`.
        """

    def put_agent(
        self, definition: str, agent_key: str | None = None, *, expected_version: int | None = None
    ) -> agent_pb2.PutAgentResponse:
        """Create or replace an agent of the caller's tenant.

        Effect: if the definition has errors, all of them are returned, as ValidateAgent finds them with for_tenant,
        and nothing is stored. Otherwise it gets a version and applies to all runs that begin afterwards; on other
        replicas within 2 s. Existing runs, queued and waiting ones included, keep the version that they are pinned
        to. Other tenants never see the agent.
        Fence: expected_version is the active version that the caller has seen, 0 for no agent; absent skips the
        check.
        Idempotent: putting the active definition again changes nothing. Recorded in the audit log as agent.put.
        Errors: VERSION_CONFLICT (another version is active); KEY_TAKEN (the operator has an agent file with this
        key, and files take precedence: HEADRACE_ORCHESTRATOR_AGENTS_PRECEDENCE); INVALID_REQUEST; QUOTA_EXCEEDED at
        200 agents of the tenant or 8 MiB of definitions, 10,000 agents of all tenants, or 10,000 versions of the
        agent; PERMISSION_DENIED without the scope `publish`.
        """

    def delete_agent(self, agent_key: str, *, expected_version: int | None = None) -> None:
        """Delete an agent of the caller's tenant.

        Effect: new queries for it are refused with NOT_FOUND, on other replicas within 2 s. No run ends: runs that
        are queued, running, waiting for people or taken over continue with the version that they are pinned to. Its
        versions are kept, so that PutAgent can restore one. Recorded in the audit log as agent.removed.
        Errors: NOT_FOUND, also if it was already deleted; VERSION_CONFLICT as in PutAgent; PERMISSION_DENIED
        without the scope `publish`.
        """

    def stored_agents(self) -> list[agent_pb2.StoredAgent]:
        """List the agents that the tenant has stored, ordered by key. Inactive ones are listed with the reason.

        Changes nothing. Complete: there is no paging.
        Errors: PERMISSION_DENIED without the scope `publish`.
        """

    def agent_definition(self, agent_key: str, version: int = 0) -> agent_pb2.GetAgentDefinitionResponse:
        """Get the definition of an agent of the caller's tenant, as it was sent to PutAgent, or that of an earlier
        version.

        Changes nothing. The text of an earlier version is JSON with sorted keys. Agents defined in files are not
        found here.
        Errors: NOT_FOUND; PERMISSION_DENIED without the scope `publish`.
        """

    def agent_problems(self) -> list[agent_pb2.AgentProblem]:
        """List the problems of agents: files in the agents folder that have one, ordered by name, then agents of the
        caller's tenant that are inactive or share a key with a file.

        Changes nothing. Each replica reports the folder as it last read it.
        Errors: PERMISSION_DENIED without the scope `operate`.
        """

    def identity(self) -> agent_pb2.GetIdentityResponse:
        """Return the caller's identity, roles and scopes.

        Changes nothing. Without authentication, every caller is the user `default` with all scopes.
        """

    def chat_runs(self, chat_id: str, *, page_size: int = 0, page_token: str = "") -> agent_pb2.ListRunsResponse:
        """List the runs of a chat, oldest first, with their total cost.

        Changes nothing. Pages are stable: new runs are only added at the end.
        Errors: NOT_FOUND (chat); INVALID_REQUEST for a page_token that this service did not issue.
        """

    def context(
        self, chat_id: str, *, agent_key: str | None = None, run_id: str | None = None
    ) -> agent_pb2.GetContextResponse:
        """Report what fills the context window of a chat's next request, and what has been dropped from it.

        Without run_id, it describes the request that the chat's next question would begin with, for the agent that
        would answer it, before the question's own text. With run_id, it describes that run's current request.
        Tokens are counted as for a request. A part that memory cannot show in its original form is listed with the
        reason. Changes nothing and calls no model.
        Errors: NOT_FOUND (chat, agent, run); OVERLOADED if no valid agent file has been read since the start;
        CONTEXT_LENGTH_EXCEEDED as for a turn.
        """

    def cassette(self, run_id: str) -> list[str]:
        """Get the recording of an ended run, as the lines of a cassette: its input, the timed replies of its peers and
        people, and its events. docs/reference/cassette.md describes the format.

        Changes nothing. Complete over its pages, which are stable. It has no secrets: headers and keys are not
        kept, and text that looks like a credential is masked. The operator's content is included only with the
        scope `operate`: agent definitions, the code of modes, and files such as approvals.yaml.
        Errors: NOT_FOUND (run; also one that was not or could not be recorded: the message gives the reason);
        INVALID_REQUEST for a page_token that this service did not issue, or a run that has not ended.
        """

    def run(self, run_id: str) -> agent_pb2.Run:
        """Get a run's state, usage and remaining budget.

        Changes nothing. Errors: NOT_FOUND.
        """

    def audit(
        self,
        event: str | None = None,
        page_token: str = "",
        page_size: int | None = None,
        *,
        by: str | None = None,
        from_at: int | None = None,
        until_at: int | None = None,
    ) -> audit_pb2.ListAuditResponse:
        """List the tenant's audit log, newest first.

        Changes nothing. Pages are stable: lines are only appended.
        Errors: INVALID_REQUEST for a page_token that this service did not issue.
        """

    def export_audit(self, after_seq: int = 0, *, follow: bool = False) -> AbstractContextManager[Iterator[str]]:
        """Export the tenant's log in order, as it is stored; with follow, also lines appended later.

        Effect: the export is itself logged, as the last line of an export without follow: a file that does not end
        with audit.exported is incomplete. With follow, the stream ends when the caller disconnects or the service
        stops. Lines arrive within a second or two, in order, each once; use after_seq to resume.
        Errors: INVALID_REQUEST; OUT_OF_RANGE for an after_seq beyond the log's end.
        """

    def verify_audit(self) -> audit_pb2.VerifyAuditResponse:
        """Verify the tenant's stored log: each line, its place in the chain, and the log's end.

        Changes nothing. A problem is not an error: `problem` names the first place. An attacker with write access
        to the store can forge a whole new log; comparing with a copy of the last line's hash kept elsewhere reveals
        that.
        """

    def export_data(self, user: str = "") -> AbstractContextManager[Iterator[bytes]]:
        """Export all data of a user as one tar archive.

        Users may export their own data; another user's requires the scope admin. The archive has chats (logs as
        they are stored, and their blobs), the user's runs in others' chats, files of workspaces, facts, schedules,
        grants, gates, keys (as in ListKeys), webhooks of runs, spending, and the MCP servers that the user has
        authorized; it contains no secrets. The last entry is manifest.json: each entry's name, size and SHA-256. An
        archive without it is incomplete. Over HTTP the reply is the archive itself (application/x-tar).
        Effect: data.exported is written to the audit log before the first byte. The archive is not a snapshot: data
        written meanwhile may or may not be in it, but each entry is consistent.
        Errors: PERMISSION_DENIED; OVERLOADED if a service is unavailable.
        """

    def erase_data(
        self, *, user: str = "", tenant: str = "", reason: str = "", request_id: str = ""
    ) -> data_pb2.Erasure:
        """Erase all data of a user, or of the caller's whole tenant.

        Effect: the erasure is stored before the reply, and continues until its receipt is written, even if services
        restart. Meanwhile new runs, files, facts, schedules, keys and shares of those users are refused (ERASING);
        their live runs are ended first. It deletes their chats with logs, blobs, files, shares and index rows,
        their facts, schedules and webhooks of runs, and revokes their keys, except the caller's. Their runs in
        others' chats are replaced by redacted lines, which keep the chat valid. Their spending is kept as numbers,
        under an anonymous name. For a tenant it also deletes its agents, webhooks and spending. Webhooks of deleted
        runs, and deliveries that name the user, are deleted too. Data encrypted with a lost key is deleted unread;
        the receipt names data that must be kept because its owner cannot be determined.
        Idempotent: while an erasure of the same data is in progress, and for the same request_id, that erasure is
        returned; a later repetition finds nothing left to erase, and reports that.
        Errors: INVALID_REQUEST; HELD if the user or the tenant is held; a held chat is kept, and the receipt names
        it.
        """

    def erasure(self, erasure_id: str) -> data_pb2.Erasure:
        """Get an erasure, with its receipt once it is done.

        Changes nothing. Errors: NOT_FOUND.
        """

    def erasures(self) -> list[data_pb2.Erasure]:
        """List the tenant's erasures, newest first, at most 1,000.

        Changes nothing. Receipts are kept: they name the user, but none of the erased data.
        """

    def place_hold(
        self, *, user: str = "", chat_id: str = "", tenant: str = "", reason: str, request_id: str = ""
    ) -> data_pb2.Hold:
        """Place a hold on the data of a user, a chat, or the tenant. The data cannot be deleted or erased while it is
        held.

        Effect: from now on retention skips it, and deleting its chats, facts and schedules is refused with HELD;
        for a user, so is deleting others' chats that contain the user's runs. A deletion that is already in
        progress may still finish. Idempotent with a request_id.
        Errors: INVALID_REQUEST; ERASING if the data is being erased; QUOTA_EXCEEDED beyond 10,000 holds of a
        tenant.
        """

    def holds(self, *, include_ended: bool = False) -> list[data_pb2.Hold]:
        """List the tenant's holds, newest first.

        Changes nothing.
        """

    def release_hold(self, hold_id: str) -> data_pb2.Hold:
        """Release a hold. Its data can then be deleted and erased, unless another hold covers it.

        Idempotent: a released hold is returned unchanged. Errors: NOT_FOUND.
        """

    def gates(
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
        """List open gates, the longest waiting first.

        Changes nothing. A page continues after its token's gate: a gate that closes meanwhile is on no later page,
        one that opens is on the last. Complete, except for gates opened by earlier releases.
        Errors: INVALID_REQUEST for a page_token that this service did not issue; PERMISSION_DENIED (scope tenant).
        """

    def watch_gates(
        self,
        *,
        scope: str | None = None,
        agent_key: str | None = None,
        kind: str | None = None,
        risk: str | None = None,
    ) -> AbstractContextManager[Iterator[gates_pb2.WatchGatesResponse]]:
        """Follow the gates that ListGates lists with the same filters: first the open ones, then each change.

        Changes nothing. The stream begins with list_begin, a row for each open gate, and list_end: previously shown
        gates that are not among them are no longer open. Then it sends a row for each gate that opens, for each
        step (a claim, a vote, a delegation), and for each gate that closes, with its state. Access is checked for
        each row. Changes of one gate in quick succession may arrive as one row with its current state; no gate is
        missed. A reader that falls more than 1,000 changed gates behind receives list_begin again; so do all
        readers after the store was unreachable. The stream cannot be resumed: it ends when the service stops, and
        opening it again sends the list again. It also ends when the caller disconnects. Errors: INVALID_REQUEST;
        PERMISSION_DENIED (scope tenant).
        """

    def gate(self, run_id: str, gate_id: str) -> gates_pb2.Gate:
        """Get a gate, open or closed, with the arguments of its call.

        Changes nothing. A gate is kept as long as its chat. The requester, users who may answer it and callers with
        the scope `operate` can see it; the last see no arguments without `read_content`. Errors: NOT_FOUND (run,
        gate); INDEX_INCOMPLETE.
        """

    def answer_gate(
        self, run_id: str, gate_id: str, payload: str, *, request_id: str | None = None, holder: str | None = None
    ) -> gates_pb2.AnswerGateResponse:
        """Answer a gate; the same as Submit with its id.

        Effect: the first answer wins. It is committed, with the caller's identity, before it is acknowledged, and
        the run continues with it. If the rule requires several approvals, each one before the last is committed and
        answered `voted`; after an edit of the arguments, the others approve by submitting an edit with the same
        arguments. A second answer gets `duplicate`, a late one `expired`, and one for an id that is not a gate of
        the run `unmatched`; none of these is an error. Idempotent by request_id. The id of a call that the query's
        caller executes itself is accepted too.
        Errors: INVALID_REQUEST, also for a payload that does not match the gate's result_schema, and for edited
        arguments that the tool's schema or a rule refuses: the gate stays open; NOT_FOUND (run, also if the caller
        may not see the gate); PERMISSION_DENIED (its rule does not let the caller answer, or not with these
        arguments); CLAIMED (another client has claimed it).
        """

    def claim_gate(
        self, run_id: str, gate_id: str, holder: str, *, lease_ms: int | None = None
    ) -> gates_pb2.ClaimGateResponse:
        """Claim an open gate for one client, so that others see that it is being answered.

        Effect: until claimed_until no one else can answer or claim it, except to reject an approval, which anyone
        who may answer can do. Writes a line to the log and an event (gate.step). The same user and holder can claim
        it again to renew the lease, or after a reload: if more than half of the lease is left, the existing claim
        is returned, so a client that renews often writes at most two lines per lease. A gate can also be answered
        without a claim.
        Errors: INVALID_REQUEST; NOT_FOUND (run, gate, also if the caller may not see it); PERMISSION_DENIED (its
        rule does not let the caller answer); CLAIMED (another client has it), with claimedBy and until.
        """

    def release_gate(self, run_id: str, gate_id: str, holder: str) -> bool:
        """Release a claim before it expires.

        Effect: others may claim and answer at once. Writes a line to the log and an event (gate.step). Does nothing
        if the caller and holder have no claim. Errors: INVALID_REQUEST; NOT_FOUND (run, gate).
        """

    def delegate_gate(
        self, run_id: str, gate_id: str, to: Iterable[str], *, note: str | None = None, request_id: str | None = None
    ) -> str:
        """Delegate an open gate to other users, who may then answer it too and find it with ListGates.

        Effect: they are added to the gate's answerers, with a line in the log and an event (gate.step); the
        delegating user remains one. The four-eyes rule still applies: the requester may not answer, whatever roles
        it is delegated to. Idempotent by request_id.
        Errors: INVALID_REQUEST; NOT_FOUND (run, gate, also if the caller may not see it); PERMISSION_DENIED (its
        rule does not let the caller answer); QUEUE_FULL (the gate has too many steps).
        """

    def ask_back(self, run_id: str, gate_id: str, note: str, *, request_id: str | None = None) -> str:
        """Ask the requester about an open gate, or reply as the requester; the gate stays open.

        Effect: writes a line to the log and an event (gate.step, `asked_back`) with the note; GetGate returns it in
        `steps`. It reaches people, not the model. Idempotent by request_id.
        Errors: INVALID_REQUEST; NOT_FOUND (run, gate, also if the caller may not see it); PERMISSION_DENIED (the
        caller is neither the requester nor allowed to answer); QUEUE_FULL (the gate has too many steps).
        """

    def grants(
        self, *, scope: str | None = None, chat_id: str | None = None, page_size: int = 0, page_token: str = ""
    ) -> gates_pb2.ListGrantsResponse:
        """List active grants, oldest first. A grant is an approval that extends to later calls of a run or chat
        (GrantMake).

        Changes nothing. Lists the caller's grants and those of the caller's chats; with the scope `tenant`, all of
        the tenant. Errors: INVALID_REQUEST for a page_token that this service did not issue; PERMISSION_DENIED
        (scope tenant).
        """

    def revoke_grant(self, chat_id: str, grant_id: str) -> str:
        """Revoke a grant before it expires.

        Effect: writes a line to the chat's log. Once acknowledged, every call that is evaluated afterwards needs
        approval again; a call that was evaluated before still runs (the log has its grant.use, or will within
        moments). Allowed for the chat's owner, every user who made the grant by an answer or vote, and callers with
        the scope `operate`. Idempotent.
        Errors: INVALID_REQUEST; NOT_FOUND (chat, grant, also if the caller may not see it); LOG_DAMAGED.
        """

    def export_gates(
        self,
        chat_id: str | None = None,
        *,
        since: int | None = None,
        before: int | None = None,
        with_content: bool = False,
    ) -> AbstractContextManager[Iterator[str]]:
        """Export the history of gates for an audit: each step of each gate and grant, in the order of commits.

        Changes nothing. Each message is one line of a hash-chained file; docs/guides/gate-exports.md describes it.
        The first line repeats the request; the last one, `end`, has the number of steps, and a file without it is
        incomplete. For a chat, its owner may export it, and callers with the scope `operate` any chat of the
        tenant. Without a chat, all chats of the tenant that are not deleted are exported, which requires the scope
        `operate`. The export says who did what to which call, and nothing from the conversation; with_content,
        which requires the scope `read_content`, adds the calls' arguments, notes and payloads. The stream ends
        after the last line. Errors: INVALID_REQUEST, also for more than 100,000 steps: request a shorter time;
        NOT_FOUND (chat); PERMISSION_DENIED (scope); INDEX_INCOMPLETE without a chat.
        """

    def create_key(
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
        """Create an API key for a user of the tenant.

        Effect: a key for the caller is active at once, a key for another user after it is confirmed. Only this
        response has its text. Idempotent by key_id, which the caller may choose: repeating the request returns the
        stored key, without its text.
        Errors: INVALID_REQUEST, also for another key's id; PERMISSION_DENIED, also for scopes that the caller's own
        credential lacks, and for roles that the caller lacks and HEADRACE_MEMORY_KEY_ROLES does not name;
        QUOTA_EXCEEDED if the tenant has 1,000 keys, or all tenants together have 100,000.
        """

    def confirm_key(self, key_id: str) -> keys_pb2.ConfirmKeyResponse:
        """Confirm a key that was created for another user. That user, or an admin other than the key's creator, may
        confirm it.

        Effect: if another admin confirms it, the key becomes active unchanged. If its user confirms it, the key
        gets a new text, returned only in this response; the old text becomes invalid, and its open streams end. Its
        makers then no longer know it, and no longer count as its user. The caller's own credential must not have
        been created by one of the key's makers. Idempotent for an admin. Its user gets a new text each time, also
        for a key that is already confirmed; if nobody else knows that key's text, the caller's credential must have
        all its scopes and roles.
        Errors: NOT_FOUND, also for another user's key without the scope admin; PERMISSION_DENIED; INVALID_REQUEST
        for a revoked key.
        """

    def keys(self, user: str | None = None, state: str | None = None) -> list[keys_pb2.ApiKey]:
        """List the tenant's keys, oldest first. Keys that ended within the last 30 days are included.

        Changes nothing. Keys of the file are not listed.
        """

    def key(self, key_id: str) -> keys_pb2.ApiKey:
        """Get a key.

        Changes nothing. Errors: NOT_FOUND.
        """

    def update_key(
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
        """Update a key. Absent fields stay unchanged, and a list replaces the previous one.

        Effect: calls that begin more than 5 s later use the new roles, scopes and limits. Open calls keep the old
        ones, unless the key is disabled or loses a role or scope: then they end with CREDENTIAL_ENDED. A key with
        makers other than its user must be confirmed again if it gets more scopes or roles, or a later end.
        Errors: NOT_FOUND; INVALID_REQUEST, also for a revoked key; PERMISSION_DENIED, also for scopes that the
        caller's own credential lacks, and for new roles as in CreateKey.
        """

    def revoke_key(self, key_id: str) -> keys_pb2.ApiKey:
        """Revoke a key permanently. Within 5 s, calls with it are refused, and its open streams end.

        To disable a key for a time, use UpdateKey. Idempotent: a revoked key is returned unchanged. Errors:
        NOT_FOUND.
        """

    def suspend_user(self, user: str) -> keys_pb2.SuspendedUser:
        """Suspend a user of the tenant, with all of their credentials.

        Effect: within 5 s, all of their calls on every replica end with CREDENTIAL_ENDED, whether made with a key
        of the file, a stored key, a token or a session, or with a key that they created for another user and
        therefore know. Their open streams end and their runs are cancelled. A run that is only waiting for people
        keeps its gates, and is cancelled if it would continue. Their schedules are held and start no runs, not even
        for posts to /hooks. None of their data is deleted.
        Idempotent: a suspended user is returned unchanged. The user need not be known here, because users of tokens
        are not.
        Errors: INVALID_REQUEST, also for the caller's own user; QUOTA_EXCEEDED as in CreateKey.
        """

    def release_user(self, user: str) -> None:
        """Release a suspended user.

        Effect: within 5 s, their credentials work again, except those that have ended, and their schedules start
        runs again, except for times that have passed. Cancelled runs stay cancelled. Idempotent. Errors: NOT_FOUND
        for a user who was never suspended.
        """

    def suspended_users(self) -> list[keys_pb2.SuspendedUser]:
        """List the tenant's suspended users, longest suspended first.

        Changes nothing.
        """

    def chats(
        self, *, page_size: int = 0, page_token: str = "", scope: str | None = None
    ) -> memory_pb2.ListChatsResponse:
        """List chats, most recently changed first. These are the caller's own, or those that others share with the
        caller, to read or to take part.

        Changes nothing. Pages are stable for chats that do not change meanwhile.
        Errors: INVALID_REQUEST for a page_token that this service did not issue.
        """

    def rename_chat(self, chat_id: str, title: str, *, if_untitled: bool = False, request_id: str = "") -> str:
        """Change a chat's title.

        Effect: appends a line; chat_name does not change. Search no longer finds the previous title.
        Errors: NOT_FOUND; LOG_DAMAGED; INVALID_REQUEST. Idempotent by request_id.
        """

    def delete_chat(self, chat_id: str) -> None:
        """Delete a chat with its log, workspace lines and blobs.

        Idempotent: for a chat that does not exist, the reply is NOT_FOUND and nothing changes. A chat with a lost
        encryption key is deleted unread; then only a run with an owner counts as unfinished, because no other run
        can end.
        Errors: NOT_FOUND; CHAT_BUSY while a run of it is unfinished.
        """

    def fork(self, chat_id: str, *, run_id: str | None = None, n: int | None = None, request_id: str = "") -> str:
        """Copy a chat's log, up to a point, into a new chat. The copy is the caller's, and private; participants of a
        chat may copy it.

        Effect: creates an independent copy. Its runs have new ids; runs that are not copied to their end are
        cancelled in the copy. Line numbers are kept. Without run_id and seq, the whole log is copied. Idempotent by
        request_id, even if the original chat has been deleted meanwhile.
        Errors: NOT_FOUND (chat, run); OUT_OF_RANGE for a line that does not exist; LOG_DAMAGED; INVALID_REQUEST.
        """

    def search(self, query: str, *, scope: str = "", limit: int = 0) -> list[memory_pb2.SearchHit]:
        """Search chats, their titles, insights and summaries by full text, best match first; scope all also searches
        facts.

        A text matches if it contains any word of the query, and ranks higher the more of them it contains. In
        scripts without spaces between words, three consecutive characters count as a word. Reverted content is not
        found. Changes nothing.
        Errors: INVALID_REQUEST.
        """

    def remember(
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
        """Store a fact for later chats.

        Effect: facts that it replaces, by id or by having the same topic, end now; they stay in the list as ended.
        If a valid fact of its scope already has the same words, and the topic if one is given, that fact is kept
        and returned. A plan overwrites the user's plan for the same question with this agent, or the user's oldest
        one if 50 are stored, and takes its id. Idempotent by request_id, even after the fact was deleted.
        Errors: NOT_FOUND for a fact to replace that does not exist; PERMISSION_DENIED for scope tenant if the
        operator does not allow it; FACTS_FULL; HELD for a plan that would overwrite one of a user on hold;
        INVALID_REQUEST.
        """

    def facts(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        scope: str = "",
        agent_key: str = "",
        include_ended: bool = False,
    ) -> memory_pb2.ListFactsResponse:
        """List the facts that the user can see, newest first. These are the user's own, those about the user with each
        agent, and the tenant's.

        Plans are listed only by their scope. Changes nothing. Errors: INVALID_REQUEST for a page_token that this
        service did not issue.
        """

    def recall(self, query: str, *, agent_key: str = "", limit: int = 0, scope: str = "") -> list[memory_pb2.FactHit]:
        """Find the valid facts relevant to a query, best first. None is found if no known fact is relevant.

        Words match by their stems; stop words of the query's language are ignored; a word in few facts counts more
        than a word in many (BM25). Facts with few of the query's words rank below those with more of them. Other
        words are matched only with HEADRACE_MEMORY_FACT_EMBEDDINGS: each call then makes one billed call of that
        model (LlmService.Embed), of at most 3 s; if it fails, only words count. Changes nothing except to store
        missing vectors of facts. Plans are found only by their scope, by words alone, and only if the plan's
        question has at least half of the query's words.
        """

    def edit_fact(self, fact_id: str, *, text: str | None = None, topic: str | None = None) -> memory_pb2.Fact:
        """Change a fact's text or topic. The previous text is removed from the store, as by DeleteFact.

        Errors: NOT_FOUND; PERMISSION_DENIED for a tenant's fact if the operator does not allow it; INVALID_REQUEST.
        """

    def delete_fact(self, fact_id: str) -> memory_pb2.Fact:
        """Delete a fact.

        Effect: text, topic and source are removed from the store before the reply; a tombstone with the id and the
        time remains. The chat that is the fact's source keeps its log until it is deleted itself.
        Idempotent: for a deleted fact, the reply is the same as the first one.
        Errors: NOT_FOUND; PERMISSION_DENIED for a tenant's fact if the operator does not allow it.
        """

    def checkpoints(
        self, chat_id: str, *, run_id: str = "", kind: str = "", page_size: int = 0, page_token: str = ""
    ) -> memory_pb2.ListCheckpointsResponse:
        """List a chat's checkpoints, latest first: the points that Revert can return to.

        There is one before each query and each step visible to people. Changes nothing.
        Errors: NOT_FOUND; INVALID_REQUEST for a page_token that this service did not issue.
        """

    def revert(
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
        """Revert the views of a chat, including the session state, to a checkpoint; the log keeps everything.

        Effect: appends a line; deletes nothing and does not change workspace files. There is a checkpoint before
        each query and each step visible to people, with ids from 0; after a revert with scope all, new ids continue
        from the checkpoint's. Unfinished runs keep their query even if it is reverted.
        Errors: NOT_FOUND (chat, checkpoint, run), also if the checkpoint is not before line n; CHAT_BUSY while a
        run of the chat is unfinished, with run_id and scope model while one has written steps; STALE_LEASE;
        LOG_DAMAGED. Idempotent by request_id.
        """

    def pin(self, chat_id: str, n: int, *, remove: bool = False, request_id: str = "") -> int:
        """Pin a message of the chat, or unpin it: a pinned message is kept word for word along with every summary that
        covers it.

        Effect: appends a line. The pinned texts of a chat have at most 8,000 characters together. Pinning again
        changes nothing.
        Errors: NOT_FOUND (chat, line without a text of a person or a model); OUT_OF_RANGE if the pinned texts would
        exceed the limit; LOG_DAMAGED. Idempotent by request_id.
        """

    def pins(self, chat_id: str) -> list[memory_pb2.Pin]:
        """List a chat's pinned messages, in the order of the log. Changes nothing. Errors: NOT_FOUND."""

    def summary(self, chat_id: str) -> memory_pb2.GetSummaryResponse:
        """Get the summary that a chat's next question follows, as last written or edited. Changes nothing.

        For a chat that was never compacted, the number is 0 and the text empty. Errors: NOT_FOUND.
        """

    def edit_summary(self, chat_id: str, n: int, text: str, *, request_id: str = "") -> int:
        """Edit a chat's summary.

        Effect: appends a line with the new text, which models see from then on; the old text stays in the log. The
        next compaction summarises the edited text.
        Errors: NOT_FOUND; ABORTED (STALE_LEASE) if n is no longer the chat's summary; LOG_DAMAGED; INVALID_REQUEST.
        Idempotent by request_id.
        """

    def state(self, chat_id: str, context_id: str = "") -> memory_pb2.GetStateResponse:
        """Get a context's session state. Changes nothing; for a context without state, the version is 0 and the state
        {}.

        Errors: NOT_FOUND.
        """

    def update_state(
        self,
        chat_id: str,
        state: str,
        expected_version: int,
        context_id: str = "",
        *,
        run_id: str = "",
        generation: int = 0,
    ) -> int:
        """Replace a context's session state if its version is still the expected one.

        Effect: appends a line. A continuing run reads the state again before it changes it. A revert counts as a
        change of every state. Errors: NOT_FOUND (chat, run); ABORTED (STALE_LEASE) if the version differs;
        LOG_DAMAGED; INVALID_REQUEST.
        """

    def tenant_run(self, run_id: str, *, include_events: bool = False) -> operator_pb2.OperatorGetRunResponse:
        """Get a run of any user of the tenant, and on request its committed events.

        Changes nothing. With the scope `read_content`, events are complete, and reading them is logged; without it
        they have ids, names, numbers and states, but no texts.
        Errors: NOT_FOUND; PERMISSION_DENIED.
        """

    def cancel_runs(
        self, run_ids: Iterable[str] = (), *, matching: operator_pb2.OperatorListRunsRequest | None = None
    ) -> operator_pb2.CancelRunsResponse:
        """Cancel runs, by their ids or by a filter, at most 200 at a time.

        Effect: each run is cancelled as by AgentService.Cancel with mode now, whichever replica owns it, as if its
        user had done so. The reply has the result for each, and the log names the caller. The reply arrives when
        the cancels are under way, before the runs have ended. Not atomic: each run is handled separately.
        Idempotent: a run that has ended is answered `ended`.
        Errors: INVALID_REQUEST for neither ids nor a filter, or both; PERMISSION_DENIED; INDEX_INCOMPLETE for a
        filter.
        """

    def providers(self) -> list[llm_pb2.ProviderHealth]:
        """Return the health of the active providers, from LlmService.ListProviders.

        Changes nothing, and calls no provider. If the gateway has several replicas, one of them answers, for
        itself.
        Errors: PERMISSION_DENIED; OVERLOADED if no valid provider file has been read since the start.
        """

    def limits(self, user: str = "", *, key: str = "", agent_key: str = "") -> limits_pb2.GetLimitsResponse:
        """Get all limits that apply to a user of the tenant: value, source, current use, and when each opens again.

        Changes nothing. Each service reports the limits that it enforces now, from one of its replicas; a service
        that does not answer within 5 s is listed in `missing`. Use by other tenants is not shown: for a limit that
        all tenants share, the reply only says whether it is full for this one. Not included: limits of one agent
        (see its file), limits on the form of requests (see each field's rules in the contract), and limits of the
        sandbox for one command.
        Errors: NOT_FOUND for a key that is not the tenant's; PERMISSION_DENIED.
        """

    def replicas(self) -> list[operator_pb2.Replica]:
        """List the replicas of the orchestrator. Included are those that have runs of the tenant, and the one that
        answers.

        Changes nothing. Replicas are known by their leases in memory: one without a run appears only if it is the
        one that answers.
        Errors: PERMISSION_DENIED.
        """

    def create_schedule(
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
        """Create a schedule.

        Idempotent by schedule_id, which the caller may choose: repeating the request returns the stored schedule.
        Errors: INVALID_REQUEST, also if the id is another schedule's; NOT_FOUND if no agent has the key, once an
        orchestrator has reported its agents; QUOTA_EXCEEDED if the user has 1,000.
        """

    def schedules(self, *, scope: str | None = None, user: str | None = None) -> list[schedule_pb2.Schedule]:
        """List the user's schedules, oldest first. The scope operate also allows those of all users of the tenant.

        Changes nothing. A page continues after its token's schedule, even if that is deleted meanwhile. Other
        users' schedules are listed without their names.
        Errors: INVALID_REQUEST for a page_token that this service did not issue; PERMISSION_DENIED (scope tenant).
        """

    def schedule(self, schedule_id: str) -> schedule_pb2.Schedule:
        """Get a schedule and its latest firings.

        Changes nothing. With the scope operate, also another user's, without its name and message.
        Errors: NOT_FOUND.
        """

    def update_schedule(
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
        """Update a schedule. Absent fields stay unchanged.

        Effect: if its times, time zone or pause change, the next time is computed again, from now on. Times during
        a pause do not count as missed. `held` requires the scope operate and may be set on any user's schedule of
        the tenant; no other field of another user's schedule can be changed.
        Errors: NOT_FOUND; INVALID_REQUEST; PERMISSION_DENIED (held).
        """

    def delete_schedule(self, schedule_id: str) -> None:
        """Delete a schedule. Its live runs continue, and their chats are kept.

        With the scope operate, also another user's. Errors: NOT_FOUND.
        """

    def trigger_schedule(self, schedule_id: str, request_id: str | None = None) -> schedule_pb2.Schedule:
        """Start a run of the schedule now, in addition to its times; also if it is paused.

        Returns before the run begins, which takes some seconds; the firing has its id. Repeated requests count as
        one until the run begins, and afterwards too if they have the same request_id.
        Errors: NOT_FOUND.
        """

    def rotate_schedule_secret(self, schedule_id: str, keep_s: int | None = None) -> str:
        """Create or rotate the secret that other systems use to sign their posts. The previous secret stays valid for
        a day, or for keep_s.

        Effect: a post to /hooks/{scheduleId} signed with it starts a run, if the schedule has on_webhook. Each call
        creates another secret.
        Errors: NOT_FOUND; INVALID_REQUEST.
        """

    def usage(
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
        """Sum up spending over days, grouped as requested.

        Changes nothing, and covers everything in the logs: a charge counts from the append that records it, on the
        day (UTC) of that append. The sum of a run's charges equals the usage reported at its end, except tool
        calls. The cost of deleted chats is kept. Forking a chat costs nothing. Not included: embedding calls, calls
        in progress when a process was killed, and calls after a run's end (facts, titles).
        Errors: INVALID_REQUEST for invalid days or groups; PERMISSION_DENIED for scope tenant without the scope
        `operate`; INDEX_INCOMPLETE while a log that may have charges of these days is not indexed.
        """

    def complete_authorization(
        self, state: str, code: str, issuer: str | None = None, *, error: str | None = None
    ) -> tools_pb2.CompleteAuthorizationResponse:
        """Complete an authorization with the parameters that the authorization server sent to the redirectUrl of
        mcp.json, through the user's browser.

        Effect: the code is exchanged for tokens. They are stored, encrypted, for this user and MCP server only, and
        used in the user's calls from now on. A state can be used once, within an hour.
        Errors: NOT_FOUND (the state is unknown, used, expired, or another user's); INVALID_REQUEST (refused by the
        user or the authorization server, or the issuer is not the expected one); PROVIDER_UNAVAILABLE (it does not
        answer); OVERLOADED (the audit log cannot be written: nothing is stored); ERASING.
        """

    def authorizations(self) -> list[tools_pb2.Authorization]:
        """List the caller's authorizations of MCP servers (OAuth). They are ordered by server.

        Changes nothing. Other users' authorizations are not visible, and tokens are never shown.
        """

    def revoke_authorization(self, server: str) -> bool:
        """Revoke the caller's authorization of an MCP server.

        Effect: before the reply, its tokens are deleted for all replicas, and sessions opened with them accept no
        further calls; the next call that needs the authorization asks the user again. The authorization server is
        asked to revoke them too (RFC 7009), if it has an endpoint for that; its outcome is returned and is not an
        error.
        Errors: NOT_FOUND (the caller has not authorized this server, or has revoked it); OVERLOADED (the audit log
        cannot be written; nothing is changed).
        """

    def create_webhook(
        self,
        url: str,
        *,
        webhook_id: str = "",
        name: str = "",
        types: Iterable[str] = (),
        agent_keys: Iterable[str] = (),
        paused: bool = False,
    ) -> webhook_pb2.CreateWebhookResponse:
        """Create a webhook. It receives events from now on.

        Idempotent by webhook_id, which the caller may choose: repeating the request returns the stored webhook,
        without its secret.
        Errors: INVALID_REQUEST, also for a URL that is not allowed and for another webhook's id; QUOTA_EXCEEDED if
        the tenant has 20.
        """

    def webhooks(self) -> list[webhook_pb2.Webhook]:
        """List the tenant's webhooks, oldest first.

        Changes nothing.
        """

    def webhook(self, webhook_id: str) -> webhook_pb2.Webhook:
        """Get a webhook.

        Changes nothing. Errors: NOT_FOUND.
        """

    def update_webhook(
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
        """Update a webhook. Absent fields stay unchanged, and a list replaces the previous one.

        Effect: waiting deliveries go to the new URL. While it is paused, a webhook collects no events; deliveries
        that were waiting before continue afterwards.
        Errors: NOT_FOUND; INVALID_REQUEST; INDEX_INCOMPLETE, because earlier events must be delivered with the old
        settings.
        """

    def rotate_webhook_secret(self, webhook_id: str, keep_s: int | None = None) -> str:
        """Rotate a webhook's secret. The previous secret also signs for some time; any older one no longer does.

        Repeating it creates another secret. Errors: NOT_FOUND; INVALID_REQUEST.
        """

    def delete_webhook(self, webhook_id: str) -> None:
        """Delete a webhook and its deliveries. Waiting ones are not delivered.

        Errors: NOT_FOUND.
        """

    def ping_webhook(self, webhook_id: str) -> webhook_pb2.Delivery:
        """Send a headrace.ping event to a webhook, whatever events it is subscribed to.

        Returns before it is delivered; ListDeliveries shows the outcome. Repeating it sends another event.
        Errors: NOT_FOUND; QUOTA_EXCEEDED while the webhook is full of waiting deliveries.
        """

    def deliveries(
        self, webhook_id: str, state: str = "", page_size: int = 0, page_token: str = ""
    ) -> webhook_pb2.ListDeliveriesResponse:
        """List the deliveries to a webhook, newest event first. These are the waiting ones and those that ended within
        7 days.

        Changes nothing. Errors: NOT_FOUND; INVALID_REQUEST.
        """

    def replay_deliveries(self, webhook_id: str, event_ids: Iterable[str] = ()) -> int:
        """Deliver events again, with the same ids: the given ones that have ended, or all dead letters.

        They are queued after all waiting deliveries. Repeating it leaves those that are already waiting unchanged.
        Errors: NOT_FOUND.
        """

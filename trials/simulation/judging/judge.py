"""Runs all judges over a world after its faults."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trials.simulation.judging import chats
from trials.simulation.judging.budgets import judge_budgets
from trials.simulation.judging.edits import judge_edits
from trials.simulation.judging.effects import judge_effects
from trials.simulation.judging.erasures import judge_erasure, list_runs
from trials.simulation.judging.gates import judge_gates
from trials.simulation.judging.linearizability import judge_history
from trials.simulation.judging.readers import judge_acts, judge_reader, judge_readings
from trials.simulation.judging.recordings import judge_recordings
from trials.simulation.judging.schedules import judge_schedules
from trials.simulation.judging.services import judge_logs, judge_tasks
from trials.simulation.judging.shares import judge_shares
from trials.simulation.judging.states import judge_states, read_states
from trials.simulation.judging.webhooks import judge_webhook
from trials.simulation.postgres.faults import SEEN_AND_GONE

if TYPE_CHECKING:
    from trials.simulation.people.crowd import Crowd
    from trials.simulation.people.users import User
    from trials.simulation.world.world import World


async def judge_world(world: World, judge: User, crowd: Crowd) -> list[str]:
    people, erased = crowd.people, crowd.erased
    # First let runs end that a steer or a lost caller has left.
    while any(process.exit_code for process in world.processes.values() if process.is_dead):
        await asyncio.sleep(1)
    problems = await chats.wait_for_runs(world)
    problems += await chats.wait_for_chats(judge, people)
    if erased is not None:
        problems += await judge_erasure(world, judge, erased)
    logs = chats.read_logs(world)
    hosted = [erased.hosted] if erased is not None else []
    scheduled = {firing.chat_id for user in people for kept in user.kept for firing in kept.last.firings}
    copies = chats.find_copies(logs, {*crowd.chat_ids, *hosted, *scheduled})
    problems += chats.judge_chats(logs)
    problems += chats.judge_copies(logs, copies, {fork.copy for user in people for fork in user.forks})
    gone = list_runs(world.wire.history, logs, erased) if erased is not None else ()
    logs = chats.leave_out(logs, gone)
    problems += chats.judge_interrupted(logs)
    # PostgreSQL shows a commit that its client gave up while it waited for the standby; a fail-over takes it
    # back.
    taken_back = world.database.ends_taken_back if world.database is not None else ()
    for person in people:
        for asked in person.asked:
            problems += await judge_reader(judge, asked, logs, taken_back)
        problems += judge_acts(person, logs)
    problems += await judge_readings(judge, people, taken_back)
    await read_states(judge, people)
    reads_hold = not world.story.counts[SEEN_AND_GONE]
    problems += judge_states([*people, judge], reads_hold=reads_hold)
    problems += [*judge_gates(world, people, logs, copies, gone), *judge_effects(world, logs, copies, gone)]
    problems += [*judge_schedules(people, logs, copies), *judge_budgets(logs, copies)]
    problems += judge_history(world.wire.history, erased.own if erased is not None else (), reads_hold=reads_hold)
    problems += [*await judge_shares(world, judge, people), *await judge_webhook(world, copies, gone)]
    problems += await judge_edits(judge, people, logs)
    problems += await judge_recordings(judge, people, logs)
    problems += [*judge_logs(world), *judge_tasks(world)]
    problems += [problem for user in people for problem in user.problems]
    return [*problems, *world.outside.problems, *world.wire.problems]

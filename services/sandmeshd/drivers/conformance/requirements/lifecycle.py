"""Creating, finding and deleting sandboxes."""

from __future__ import annotations

import asyncio

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import AlreadyExists, LeaseLost, SandboxLost, SandboxNotFound
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.assertions import expect, expect_equal, expect_error
from sandmeshd.drivers.conformance.inside import run, run_cell
from sandmeshd.drivers.conformance.sandbox_end import end_of, kill_init
from sandmeshd.drivers.conformance.subject import Subject, new_id

# Far more than a deletion takes, also on a node that is busy with much else.
DELETION_SECONDS = 60.0


def _delete(sandbox_id: str) -> pb.DeleteSandboxRequest:
    return pb.DeleteSandboxRequest(sandbox_id=sandbox_id)


async def the_driver_says_what_it_is(subject: Subject) -> None:
    """Name, node, isolation and templates are told, the suite's template as prepared."""
    async with subject.open() as driver:
        info = await driver.get_info(pb.GetInfoRequest())
    expect(bool(info.name and info.node_id and info.capabilities.isolation), f"something is not reported: {info}")
    prepared = {template.name: template.prepared for template in info.templates}
    expect(prepared.get(subject.template) is True, f"{subject.template} is not prepared: {prepared}")


async def a_prepared_template_is_prepared_again_at_once(subject: Subject) -> None:
    """The last step, and only that, says done."""
    async with subject.open() as driver:
        request = pb.PrepareTemplateRequest(template=subject.template)
        steps = [step.done async for step in driver.prepare_template(request)]
    expect(steps[-1] and not any(steps[:-1]), f"done was said as {steps}")


async def a_created_sandbox_runs_commands(subject: Subject) -> None:
    """When the create returns, the agent answers at the endpoint."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        expect_equal(sandbox.state, pb.RUNTIME_STATE_RUNNING, "its state")
        done = await run(sandbox, "echo hello; echo oops >&2; exit 3")
    expect_equal((done.exit_code, done.stdout, done.stderr), (3, "hello\n", "oops\n"), "the command's end")


async def user_code_sees_the_stated_environment_variables(subject: Subject) -> None:
    """Variables of the spec are there."""
    async with subject.open() as driver, subject.sandbox(driver, environment={"COLOUR": "a b\nc"}) as sandbox:
        done = await run(sandbox, 'printf %s "$COLOUR"')
    expect_equal(done.stdout, "a b\nc", "the variable")


async def a_repeated_create_gives_the_same_sandbox(subject: Subject) -> None:
    """Nothing is made again: files of the first are there."""
    async with subject.open() as driver, subject.sandbox(driver) as first:
        await run(first, "touch /workspace/mark")
        again = await driver.create_sandbox(subject.request(first.sandbox_id))
        expect_equal(again.sandbox.endpoint, first.endpoint, "the second's endpoint")
        expect_equal((await run(again.sandbox, "cd /workspace; ls")).stdout, "mark\n", "the second's files")


async def creates_of_one_id_at_once_give_one_sandbox(subject: Subject) -> None:
    """A caller that retries while its first request is under way gets that request's sandbox."""
    request = subject.request()
    async with subject.open() as driver:
        made = await asyncio.gather(*(driver.create_sandbox(request) for _ in range(3)))
        expect_equal(len({answer.sandbox.agent_token for answer in made}), 1, "how many were made")
        await driver.delete_sandbox(_delete(request.sandbox_id))


async def the_same_id_with_another_spec_is_refused(subject: Subject) -> None:
    """ALREADY_EXISTS, and the first goes on."""
    async with subject.open() as driver, subject.sandbox(driver) as first:
        other = subject.request(first.sandbox_id, environment={"OTHER": "1"})
        await expect_error(AlreadyExists, driver.create_sandbox(other))
        expect_equal((await run(first, "echo here")).stdout, "here\n", "the first's answer")


async def several_sandboxes_are_created_at_once(subject: Subject) -> None:
    """Each has its own workspace."""
    requests = [subject.request() for _ in range(4)]
    async with subject.open() as driver:
        made = await asyncio.gather(*(driver.create_sandbox(request) for request in requests))
        for answer in made:
            done = await run(answer.sandbox, "cd /workspace; ls; touch mine")
            expect_equal(done.stdout, "", "another's files")
        await asyncio.gather(*(driver.delete_sandbox(_delete(request.sandbox_id)) for request in requests))


async def a_sandbox_is_inspected_and_listed_as_it_was_made(subject: Subject) -> None:
    """Spec, labels, endpoint and token come back; another mesh does not see it."""
    request = subject.request(labels={"team": "a"})
    request.record_labels["session"] = "s1"
    async with subject.open() as driver:
        made = (await driver.create_sandbox(request)).sandbox
        inspected = (await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=made.sandbox_id))).sandbox
        listed = await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=subject.mesh_id))
        others = await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=f"{subject.mesh_id}-other"))
        await driver.delete_sandbox(_delete(made.sandbox_id))
    expect_equal(inspected, made, "the inspected")
    expect_equal(list(listed.sandboxes), [made], "the listed")
    expect_equal(len(others.sandboxes), 0, "those of another mesh")
    expect_equal((made.spec, dict(made.record_labels)), (request.spec, {"session": "s1"}), "what was asked for")


async def a_deleted_sandbox_leaves_nothing(subject: Subject) -> None:
    """Files of any modes and depth, and processes that ignore signals, go with it, in time."""
    mess = (
        "mkdir -p /workspace/a/b/c; touch /workspace/a/b/c/f; ln -s /etc /workspace/a/link; mkfifo /workspace/a/pipe;"
        "chmod 000 /workspace/a/b/c /workspace/a/b;"
        'python3 -c \'import os; [(os.mkdir("d"), os.chdir("d")) for _ in range(2000)]\';'
        "(trap '' TERM HUP INT; setsid sleep 1000) >/dev/null 2>&1 & echo made"
    )
    async with subject.open() as driver:
        before = subject.leftovers()
        sandbox = (await driver.create_sandbox(subject.request())).sandbox
        expect("made" in (await run(sandbox, mess)).stdout, "the mess was not made")
        expect(subject.leftovers() != before, "the leftovers do not show a sandbox")
        async with asyncio.timeout(DELETION_SECONDS):
            await driver.delete_sandbox(_delete(sandbox.sandbox_id))
        expect_equal(sorted(subject.leftovers() - before), [], "what is left")
        await expect_error(
            SandboxNotFound, driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox.sandbox_id))
        )


async def deleting_twice_or_what_never_was_is_fine(subject: Subject) -> None:
    """An unknown id is answered as success."""
    async with subject.open() as driver:
        async with subject.sandbox(driver) as sandbox:
            pass
        await driver.delete_sandbox(_delete(sandbox.sandbox_id))
        await driver.delete_sandbox(_delete(new_id()))


async def deletes_of_one_id_at_once_all_succeed(subject: Subject) -> None:
    """They do not disturb one another."""
    async with subject.open() as driver:
        sandbox = (await driver.create_sandbox(subject.request())).sandbox
        await asyncio.gather(*(driver.delete_sandbox(_delete(sandbox.sandbox_id)) for _ in range(3)))
        listed = await driver.list_sandboxes(pb.ListSandboxesRequest(mesh_id=subject.mesh_id))
    expect_equal(len(listed.sandboxes), 0, "those that are left")


async def a_cancelled_create_leaves_nothing(subject: Subject) -> None:
    """Whenever its caller goes away: before, during and after the runtime's work."""
    async with subject.open() as driver:
        await driver.get_info(pb.GetInfoRequest())
        before = subject.leftovers()
        for wait in (0.0, 0.01, 0.03, 0.06):
            request = subject.request()
            task = asyncio.create_task(_create(driver, request))
            await asyncio.wait([task], timeout=wait)
            task.cancel()
            await asyncio.wait([task])
            if task.cancelled():
                await _settled(driver, request.sandbox_id)
            await driver.delete_sandbox(_delete(request.sandbox_id))
        expect_equal(sorted(subject.leftovers() - before), [], "what is left")


async def _create(driver: Driver, request: pb.CreateSandboxRequest) -> None:
    await driver.create_sandbox(request)


async def _settled(driver: Driver, sandbox_id: str) -> None:
    # Over gRPC the cancellation itself is not waited for: the sandbox goes within the time of a deletion, or is whole
    # because it was made when the cancellation came; then it is its caller's to delete.
    async with asyncio.timeout(DELETION_SECONDS):
        while True:
            try:
                found = await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox_id))
            except SandboxNotFound:
                return
            if found.sandbox.state == pb.RUNTIME_STATE_RUNNING:
                return
            await asyncio.sleep(0.01)


async def sandboxes_outlive_their_driver_and_are_adopted(subject: Subject) -> None:
    """A second driver on the same state finds it, uses it, notices its end, and deletes it."""
    async with subject.open() as first:
        sandbox = (await first.create_sandbox(subject.request())).sandbox
        await run(sandbox, "echo kept > /workspace/kept")
    async with subject.open() as second:
        listed = await second.list_sandboxes(pb.ListSandboxesRequest(mesh_id=subject.mesh_id))
        expect_equal(list(listed.sandboxes), [sandbox], "those that were adopted")
        expect_equal((await run(sandbox, "cat /workspace/kept")).stdout, "kept\n", "its files")
        async with end_of(second, subject, sandbox.sandbox_id):
            kill_init(subject, sandbox.sandbox_id)
        await second.delete_sandbox(_delete(sandbox.sandbox_id))
        left = await second.list_sandboxes(pb.ListSandboxesRequest(mesh_id=subject.mesh_id))
    expect_equal(len(left.sandboxes), 0, "those that are left")


async def a_new_token_shuts_out_lower_ones(subject: Subject) -> None:
    """The agent refuses them, and so does the driver; labels are replaced."""
    request = subject.request()
    request.fencing_token = 5
    async with subject.open() as driver:
        sandbox = (await driver.create_sandbox(request)).sandbox
        renewed = pb.InstallTokenRequest(
            sandbox_id=sandbox.sandbox_id, fencing_token=9, record_labels={"session": "s2"}
        )
        await driver.install_token(renewed)
        await expect_error(LeaseLost, run(sandbox, "true", fencing_token=5))
        expect_equal((await run(sandbox, "echo in", fencing_token=9)).stdout, "in\n", "the holder's answer")
        lower = pb.InstallTokenRequest(sandbox_id=sandbox.sandbox_id, fencing_token=6)
        await expect_error(LeaseLost, driver.install_token(lower))
        found = (await driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=sandbox.sandbox_id))).sandbox
        expect_equal(dict(found.record_labels), {"session": "s2"}, "its labels")
        await driver.delete_sandbox(_delete(sandbox.sandbox_id))


async def a_token_for_a_sandbox_that_ended_is_refused(subject: Subject) -> None:
    """SANDBOX_LOST where it ended, SANDBOX_NOT_FOUND where it never was."""
    async with subject.open() as driver:
        async with subject.sandbox(driver) as sandbox:
            async with end_of(driver, subject, sandbox.sandbox_id):
                kill_init(subject, sandbox.sandbox_id)
            token = pb.InstallTokenRequest(sandbox_id=sandbox.sandbox_id, fencing_token=3)
            await expect_error(SandboxLost, driver.install_token(token))
        await expect_error(SandboxNotFound, driver.install_token(token))


async def logs_are_given_while_the_sandbox_is_there(subject: Subject) -> None:
    """SANDBOX_NOT_FOUND afterwards."""
    async with subject.open() as driver:
        async with subject.sandbox(driver) as sandbox:
            request = pb.GetLogsRequest(sandbox_id=sandbox.sandbox_id, tail_bytes=10)
            last = await driver.get_logs(request)
            expect(len(last.data) <= 10, "more than was asked for")
            rest = pb.GetLogsRequest(sandbox_id=sandbox.sandbox_id, after_offset=last.end_offset)
            more = await driver.get_logs(rest)
            whole = await driver.get_logs(pb.GetLogsRequest(sandbox_id=sandbox.sandbox_id, tail_bytes=1 << 20))
            # A kernel that is still being made ready may write meanwhile.
            expect_equal(more.data, whole.data[last.end_offset : more.end_offset], "what was read after the first")
        await expect_error(SandboxNotFound, driver.get_logs(request))


async def a_sandbox_in_which_nothing_went_wrong_has_no_last_words(subject: Subject) -> None:
    """What is logged is told as the reason of its end."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        await run_cell(sandbox, "1")
        log = await driver.get_logs(pb.GetLogsRequest(sandbox_id=sandbox.sandbox_id, tail_bytes=1 << 20))
    expect_equal(log.data, b"", "the log")

"""What is stated is enforced or refused; nothing is made of a refused request."""

from __future__ import annotations

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, InvalidArgument, SandboxNotFound, TemplateNotFound, WrongState
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.conformance.assertions import expect, expect_error
from sandmeshd.drivers.conformance.requirements.limits import NAMES, limits_of
from sandmeshd.drivers.conformance.subject import Subject, new_id


async def an_unknown_template_is_refused_with_those_there_are(subject: Subject) -> None:
    """TEMPLATE_NOT_FOUND with `known`, of a create and of a prepare."""
    async with subject.open() as driver:
        request = subject.request()
        request.spec.template = "no-such-template"
        error = await expect_error(TemplateNotFound, driver.create_sandbox(request))
        expect(subject.template in error.facts["known"], f"the known ones are {error.facts}")
        await expect_error(TemplateNotFound, _prepare(driver, "no-such-template"))


async def _prepare(driver: Driver, template: str) -> None:
    async for _ in driver.prepare_template(pb.PrepareTemplateRequest(template=template)):
        pass


async def a_create_never_builds_a_template(subject: Subject) -> None:
    """WRONG_STATE that names the preparation."""
    if subject.unprepared is None:
        return
    async with subject.open() as driver:
        request = subject.request()
        request.spec.template = subject.unprepared
        error = await expect_error(WrongState, driver.create_sandbox(request))
    expect("prepare" in error.message, f"it says {error.message!r}")


async def limits_that_cannot_be_enforced_are_refused_by_name(subject: Subject) -> None:
    """Those that the driver's capabilities do not list."""
    async with subject.open() as driver:
        able = (await driver.get_info(pb.GetInfoRequest())).capabilities.limits
        for name in NAMES.keys() - able.keys():
            request = subject.request(limits=limits_of(**{name: 1 << 30}))
            await _refused(driver, request, name)


async def networks_that_cannot_be_granted_are_refused(subject: Subject) -> None:
    """Those that the driver's capabilities do not list."""
    async with subject.open() as driver:
        able = (await driver.get_info(pb.GetInfoRequest())).capabilities.network_modes
        none = sandbox_pb2.NETWORK_MODE_NONE
        for mode in (none, sandbox_pb2.NETWORK_MODE_PUBLIC, sandbox_pb2.NETWORK_MODE_HOSTS):
            if mode not in able:
                hosts = [] if mode == none else ["example.org"]
                request = subject.request(network=sandbox_pb2.NetworkGrant(mode=mode, hosts=hosts))
                await _refused(driver, request, "network")


async def ports_are_refused_where_sandboxes_have_none(subject: Subject) -> None:
    """Where the driver does not report `host_ports`."""
    async with subject.open() as driver:
        if not (await driver.get_info(pb.GetInfoRequest())).capabilities.host_ports:
            await _refused(driver, subject.request(port_count=1), "ports")


async def _refused(driver: Driver, request: pb.CreateSandboxRequest, needs: str) -> None:
    error = await expect_error(CapabilityMissing, driver.create_sandbox(request))
    expect(needs in error.facts["needs"], f"{needs} is not named: {error.facts}")
    await expect_error(SandboxNotFound, driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=request.sandbox_id)))


async def pause_and_snapshot_are_refused_where_they_are_missing(subject: Subject) -> None:
    """CAPABILITY_MISSING for what is not reported."""
    async with subject.open() as driver, subject.sandbox(driver) as sandbox:
        able = (await driver.get_info(pb.GetInfoRequest())).capabilities
        name = sandbox.sandbox_id
        if not able.pause:
            await expect_error(CapabilityMissing, driver.pause_sandbox(pb.PauseSandboxRequest(sandbox_id=name)))
            await expect_error(CapabilityMissing, driver.resume_sandbox(pb.ResumeSandboxRequest(sandbox_id=name)))
        if not able.snapshot:
            snapshot = pb.SnapshotSandboxRequest(sandbox_id=name, snapshot_id="snap")
            await expect_error(CapabilityMissing, driver.snapshot_sandbox(snapshot))
            gone = pb.DeleteSnapshotRequest(snapshot_id="snap")
            await expect_error(CapabilityMissing, driver.delete_snapshot(gone))


async def an_image_and_root_inside_are_refused_where_they_are_missing(subject: Subject) -> None:
    """CAPABILITY_MISSING for what is not reported, and for root inside where there is no image to be root in."""
    async with subject.open() as driver:
        able = (await driver.get_info(pb.GetInfoRequest())).capabilities
        expect(able.images or not able.root, "it has root inside, and no images")
        if not able.images:
            await _refused(driver, subject.request(image="docker.io/library/debian:12"), "image")
        await _refused(driver, subject.request(root=True), "root")


async def an_id_that_is_a_path_is_refused(subject: Subject) -> None:
    """INVALID_ARGUMENT, of every method that takes one."""
    async with subject.open() as driver:
        for bad in ("../escape", "a/b", ".hidden", "x" * 200):
            await expect_error(InvalidArgument, driver.create_sandbox(subject.request(bad)))
            await expect_error(InvalidArgument, driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=bad)))
            await expect_error(InvalidArgument, driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=bad)))


async def what_is_not_there_is_not_found(subject: Subject) -> None:
    """SANDBOX_NOT_FOUND of everything but a deletion."""
    async with subject.open() as driver:
        name = new_id()
        await expect_error(SandboxNotFound, driver.inspect_sandbox(pb.InspectSandboxRequest(sandbox_id=name)))
        await expect_error(SandboxNotFound, driver.get_logs(pb.GetLogsRequest(sandbox_id=name)))
        token = pb.InstallTokenRequest(sandbox_id=name, fencing_token=1)
        await expect_error(SandboxNotFound, driver.install_token(token))
        await expect_error(SandboxNotFound, driver.pause_sandbox(pb.PauseSandboxRequest(sandbox_id=name)))

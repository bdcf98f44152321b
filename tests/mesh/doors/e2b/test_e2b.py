"""The door for E2B's clients, by requests that their clients would send and by those that they never would."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import ssl
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import httpx2
import pytest
import pytest_asyncio

from sandmesh import BaseSandboxAsync
from sandmesh.errors import InvalidArgument
from tests.mesh.conftest import run_mesh
from tests.mesh.doors.e2b.e2b_world import World, envelope, envelopes, inside, open_world
from tests.unit.store.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOME = "/home/user"
STREAM = {"Content-Type": "application/connect+json"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all tests."""
    async with open_world() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ada(world: World) -> str:
    """Return ada's key."""
    return await world.key("ada")


async def test_a_mesh_without_the_setting_has_no_such_door() -> None:
    async with run_mesh() as mesh, aiohttp.ClientSession() as http:
        assert mesh.e2b == {}
        (url, *_) = await mesh.http.open()
        async with http.get(f"{url}/sandboxes", headers={"X-API-KEY": "e2b_" + "0" * 40}) as response:
            assert response.status == 404


async def test_settings_that_contradict_the_door_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="SANDMESH_E2B=true"):
        async with run_mesh(e2b_domain="mesh.localhost"):
            pass
    with pytest.raises(InvalidArgument, match="SANDMESH_WORKERS"):
        async with run_mesh(e2b=True, workers=2):
            pass


async def test_keys_that_are_missing_or_wrong_are_401_with_what_to_do(world: World) -> None:
    status, found = await world.send("GET", "/v2/sandboxes")
    assert status == 401
    assert "sandmesh token create" in found["message"]
    for key in ("e2b_" + "0" * 40, "nonsense", "smesh_" + "a" * 16 + "_" + "a" * 52):
        status, found = await world.send("GET", "/v2/sandboxes", {"X-API-KEY": key})
        assert (status, found["code"]) == (401, 401)


async def test_another_users_sandbox_is_not_found_by_any_route(world: World, ada: str) -> None:
    made, eve = await world.create(ada), {"X-API-KEY": await world.key("eve")}
    place = f"/sandboxes/{made['sandboxID']}"
    routes: list[tuple[str, str, dict[str, Any] | None]] = [
        ("GET", place, None),
        ("DELETE", place, None),
        ("POST", f"/v2{place}/connect", {}),
        ("POST", f"{place}/timeout", {"timeout": 60}),
        ("POST", f"{place}/timeout", {"timeout": 0}),
        ("POST", f"{place}/refreshes", {"duration": 60}),
        ("POST", f"{place}/pause", {}),
        ("POST", f"{place}/snapshots", {}),
        ("GET", f"/v2{place}/logs", None),
    ]
    for method, path, body in routes:
        status, _ = await world.send(method, path, eve, json=body)
        assert status == 404, path
    assert (await world.send("GET", "/v2/sandboxes", eve))[1] == []
    assert (await world.send("GET", place, {"X-API-KEY": ada}))[0] == 200


async def test_a_sandbox_that_was_not_made_through_the_door_is_not_shown_by_it(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.mesh.addresses[0]) as box:
        name = box.sandbox_id.removeprefix("sb_")
        status, _ = await world.send("GET", "/health", {"E2b-Sandbox-Id": name})
        assert status == 502
        status, found = await world.send("GET", "/files?path=x", {"E2b-Sandbox-Id": name})
        assert (status, found["message"]) == (502, "The sandbox was not found")


async def test_lists_have_pages_and_filters(world: World) -> None:
    key = {"X-API-KEY": await world.key("lister")}
    for number in range(3):
        await world.create(key["X-API-KEY"], metadata={"number": str(number)})
    async with world.http.get(f"{world.url}/v2/sandboxes?limit=2", headers=key) as response:
        first, following = await response.json(), response.headers["x-next-token"]
    async with world.http.get(f"{world.url}/v2/sandboxes?limit=2&nextToken={following}", headers=key) as response:
        second = await response.json()
        assert "x-next-token" not in response.headers
    assert [one["metadata"]["number"] for one in first + second] == ["2", "1", "0"]
    assert len((await world.send("GET", "/v2/sandboxes?metadata=number%3D1", key))[1]) == 1
    assert (await world.send("GET", "/v2/sandboxes?state=paused", key))[1] == []
    assert (await world.send("GET", "/v2/sandboxes?state=dozing", key))[0] == 400
    assert (await world.send("GET", "/v2/sandboxes?limit=-1", key))[0] == 400
    listed = (await world.send("GET", "/v2/sandboxes", key))[1]
    later = (await world.send("GET", f"/v2/sandboxes?startedAfter={listed[-1]['startedAt']}", key))[1]
    assert [one["sandboxID"] for one in later] == [one["sandboxID"] for one in listed[:-1]]
    assert (await world.send("GET", "/v2/sandboxes?startedAfter=lately", key))[0] == 400


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"templateID": "nonsense"}, "nonsense"),
        ({"autoPause": True, "autoPauseMemory": False, "autoResume": {"enabled": True}}, "autoPauseMemory"),
        ({"autoResume": {"enabled": True}}, "autoResume"),
        ({"mcp": {"duckduckgo": {}}}, "mcp.duckduckgo"),
        ({"mcp": {"github/a": {}}}, "mcp.github/a"),
        ({"mcp": {"github/a/b": {"install_cmd": "true"}}}, "run_cmd"),
        ({"mcp": ["git"]}, "mcp is an object"),
        ({"volumeMounts": [{"name": "v", "path": "/v"}]}, "volume 'v' not found"),
        ({"volumeMounts": [{"name": "v", "path": "relative"}]}, "volumeMounts"),
        ({"network": {"rules": {"a": []}}}, "rules"),
        ({"network": {"denyOut": ["10.0.0.1"]}}, "denyOut"),
        ({"timeout": -1}, "timeout"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {"a": "x" * 20_000}}, "metadata"),
    ],
)
async def test_what_the_mesh_cannot_do_is_refused_by_its_name(
    world: World, ada: str, values: dict[str, Any], names: str
) -> None:
    status, found = await world.send("POST", "/v2/sandboxes", {"X-API-KEY": ada}, json=values)
    assert status in (400, 404)
    assert names in found["message"]


async def test_routes_that_are_missing_say_so_with_501(world: World, ada: str) -> None:
    for path in ("/secrets", "/v3/templates/x", "/sandboxes/metrics", "/default-templates"):
        status, found = await world.send("POST", path, {"X-API-KEY": ada}, json={})
        assert status == 501, path
        assert path in found["message"]


async def test_metrics_are_what_the_sandbox_uses_now(world: World, ada: str) -> None:
    made = await world.create(ada)
    path, key = f"/sandboxes/{made['sandboxID']}/metrics", {"X-API-KEY": ada}
    status, samples = await world.send("GET", path, key)
    assert status == 200, samples
    (sample,) = samples
    assert sample["cpuCount"] >= 1
    assert sample["cpuUsedPct"] >= 0
    assert 0 < sample["memUsed"] < sample["memTotal"]
    assert 0 < sample["diskUsed"] < sample["diskTotal"]
    assert await world.send("GET", f"{path}?end={sample['timestampUnix'] - 3600}", key) == (200, [])
    assert (await world.send("GET", f"{path}?start=soon", key))[0] == 400
    assert (await world.send("GET", path, {"X-API-KEY": await world.key("eve of metrics")}))[0] == 404


async def test_metrics_of_several_are_the_callers_own_alone(world: World, ada: str) -> None:
    eve = await world.key("eve of several metrics")
    (first, second), other = [(await world.create(ada))["sandboxID"] for _ in range(2)], await world.create(eve)
    path = f"/sandboxes/metrics?sandbox_ids={first},{second},{first},{other['sandboxID']},nobody"
    status, found = await world.send("GET", path, {"X-API-KEY": ada})
    assert (status, sorted(found["sandboxes"])) == (200, sorted([first, second]))
    assert all(sample["memUsed"] > 0 for sample in found["sandboxes"].values())
    for names in ("", ",", ",".join(["a"] * 101)):
        status, _ = await world.send("GET", f"/sandboxes/metrics?sandbox_ids={names}", {"X-API-KEY": ada})
        assert status == 400
    assert (await world.send("GET", path))[0] == 401


async def test_a_repeated_request_with_its_idempotency_key_makes_one_sandbox(world: World, ada: str) -> None:
    headers = {"X-API-KEY": ada, "Idempotency-Key": "once"}
    made = [(await world.send("POST", "/v2/sandboxes", headers, json={"timeout": 60}))[1] for _ in range(2)]
    assert made[0]["sandboxID"] == made[1]["sandboxID"]


async def test_files_of_a_secured_sandbox_want_its_token(world: World, ada: str) -> None:
    made = await world.create(ada)
    bare = {"E2b-Sandbox-Id": made["sandboxID"]}
    assert (await world.send("GET", "/files?path=x", bare))[1]["message"] == "missing signature query parameter"
    assert (await world.send("GET", "/files?path=x&signature=v1_x", bare))[1]["message"] == "invalid signature"
    status, found = await world.send("GET", "/files?path=x", {**bare, "X-Access-Token": "wrong"})
    assert (status, found["message"]) == (401, "access token present in header but does not match")
    assert (await world.send("POST", "/process.Process/List", bare, json={}))[0] == 401
    status, found = await world.send("GET", "/files?path=x&username=ada", inside(made))
    assert status == 401
    assert "ada" in found["message"]
    assert (await world.send("GET", "/files?path=x", inside(made)))[1]["message"] == "path 'x' does not exist"


async def test_files_come_and_go_in_gzip_and_in_forms(world: World, ada: str) -> None:
    made = inside(await world.create(ada))
    content = b"line\n" * 100_000
    headers = {**made, "Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}
    status, written = await world.send("POST", "/files?path=big", headers, data=gzip.compress(content))
    assert (status, written) == (200, [{"path": f"{HOME}/big", "name": "big", "type": "file"}])
    async with world.http.get(f"{world.url}/files?path=big", headers={**made, "Accept-Encoding": "gzip"}) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert await response.read() == content
    status, found = await world.send("POST", "/files?path=bad", headers, data=b"not gzip")
    assert (status, "gzip" in found["message"]) == (400, True)
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("file", b"one", filename="forms/one")
    form.add_field("file", b"two", filename="/tmp/two")
    status, written = await world.send("POST", "/files", made, data=form)
    assert [one["path"] for one in written] == [f"{HOME}/forms/one", "/tmp/two"]
    assert (await world.send("GET", "/files?path=/tmp/two", made))[1] == "two"
    assert (await world.send("GET", "/files?path=forms", made))[0] == 400


async def test_malformed_messages_are_refused_and_the_sandbox_goes_on(world: World, ada: str) -> None:
    made = inside(await world.create(ada))
    start = "/process.Process/Start"
    for headers, data in (
        (STREAM, b"\0\0\0"),
        (STREAM, b"\0\xff\xff\xff\xff"),
        (STREAM, b"\0\0\0\0\2[]"),
        (STREAM, b"\1" + envelope({})[1:]),
        (STREAM, b""),
        ({"Content-Type": "application/proto"}, b"\0"),
        ({"Content-Type": "application/json"}, b"{"),
        ({"Content-Type": "application/json"}, b"{}"),
        (STREAM, envelope({"process": {"cmd": "true", "args": "x"}})),
    ):
        status, _ = await world.send("POST", start, {**made, **headers}, data=data)
        assert 400 <= status < 500, data
    status, found = await world.send("POST", "/filesystem.Filesystem/Stat", made, json={"path": "nothing"})
    assert (status, found["code"]) == (404, "not_found")
    assert (await world.send("POST", "/no.Such/Method", made, json={}))[0] == 501
    assert (await world.send("GET", "/health", made))[0] == 204


async def test_a_command_that_takes_too_long_is_killed(world: World, ada: str) -> None:
    made = inside(await world.create(ada))
    message = envelope({"process": {"cmd": "/bin/bash", "args": ["-c", "echo begun; sleep 1000"]}})
    headers = {**made, **STREAM, "Connect-Timeout-Ms": "700"}
    async with world.http.post(f"{world.url}/process.Process/Start", headers=headers, data=message) as response:
        events = envelopes(await response.read())
    assert events[-1]["error"]["code"] == "deadline_exceeded"
    _, listed = await world.send("POST", "/process.Process/List", made, json={})
    assert listed == {"processes": []}


async def test_a_command_that_begins_with_setsid_has_its_output_and_exit_code(world: World, ada: str) -> None:
    made = inside(await world.create(ada))
    script = "setsid sh -c 'sleep 0.2; echo of a session; exit 3'"
    message = envelope({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", script]}})
    async with world.http.post(f"{world.url}/process.Process/Start", headers=made | STREAM, data=message) as response:
        events = [one["event"] for one in envelopes(await response.read())[:-1]]
    written = b"".join(base64.b64decode(event["data"]["stdout"]) for event in events if "data" in event)
    assert (written, events[-1]["end"]["exitCode"]) == (b"of a session\n", 3)


async def test_a_killed_sandbox_breaks_its_streams_and_is_not_found_from_then_on(world: World, ada: str) -> None:
    created = await world.create(ada)
    made = inside(created)
    message = envelope({"process": {"cmd": "/bin/bash", "args": ["-c", "sleep 1000"]}})
    async with world.http.post(f"{world.url}/process.Process/Start", headers=made | STREAM, data=message) as response:
        first = await response.content.readany()
        assert b"start" in first
        assert (await world.send("DELETE", f"/sandboxes/{created['sandboxID']}", {"X-API-KEY": ada}))[0] == 204
        async with asyncio.timeout(20):
            with pytest.raises(aiohttp.ClientError):
                await response.content.read()
    status, found = await world.send("GET", "/health", made)
    assert (status, found["message"]) == (502, "The sandbox was not found")


@pytest.mark.parametrize("values", [{}, {"autoPause": True}, {"autoPause": True, "autoResume": {"enabled": True}}])
async def test_only_a_sandbox_that_is_to_resume_by_itself_answers_while_it_is_paused(
    world: World, ada: str, values: dict[str, Any]
) -> None:
    created, key = await world.create(ada, **values), {"X-API-KEY": ada}
    place, made = f"/sandboxes/{created['sandboxID']}", inside(created)
    assert (await world.send("POST", f"{place}/pause", key, json={}))[0] == 204
    assert (await world.send("POST", f"{place}/pause", key, json={}))[0] == 409
    assert (await world.send("GET", "/health", made))[0] == 502
    for headers, path in ((made, "/files?path=/etc/hostname"), (inside(created, 8000), "/")):
        status, found = await world.send("GET", path, headers)
        if "autoResume" not in values:
            assert (status, found["message"]) == (502, "The sandbox was not found")
        elif path != "/":
            assert status == 200
    status, _ = await world.send("POST", f"/v2{place}/connect", key, json={})
    assert status == (200 if "autoResume" in values else 201)
    assert (await world.send("GET", "/health", made))[0] == 204
    assert (await world.send("DELETE", place, key))[0] == 204


async def test_a_sandbox_that_pauses_by_itself_is_paused_at_once_by_a_time_of_nothing(world: World, ada: str) -> None:
    created, key = await world.create(ada, autoPause=True), {"X-API-KEY": ada}
    place = f"/sandboxes/{created['sandboxID']}"
    assert (await world.send("GET", place, key))[1]["lifecycle"] == {"autoResume": False, "onTimeout": "pause"}
    assert (await world.send("POST", f"{place}/timeout", key, json={"timeout": 0}))[0] == 204

    async def is_paused() -> bool:
        return bool((await world.send("GET", place, key))[1]["state"] == "paused")

    await until(is_paused)
    assert (await world.send("DELETE", place, key))[0] == 204


async def test_ports_answer_by_name_and_by_header_and_may_be_closed_to_the_public(world: World, ada: str) -> None:
    made = await world.create(ada, network={"allowPublicTraffic": False})
    message = envelope({"process": {"cmd": "python3", "args": ["-m", "http.server", "8000"]}})
    headers, web = inside(made) | STREAM, inside(made, 8000)
    status, found = await world.send("GET", "/", web)
    assert (status, "is missing" in found["message"]) == (403, True)
    web["E2B-Traffic-Access-Token"] = "wrong"
    assert (await world.send("GET", "/", web))[0] == 403
    web["E2B-Traffic-Access-Token"] = made["trafficAccessToken"]
    status, found = await world.send("GET", "/", web)
    assert (status, found["message"]) == (502, "The sandbox is running but port is not open")
    async with world.http.post(f"{world.url}/process.Process/Start", headers=headers, data=message) as response:
        await response.content.readany()
        async with asyncio.timeout(30):
            while (await world.send("GET", "/", web))[0] == 502:
                pass
        status, page = await world.send("GET", "/", web)
        assert (status, "Directory listing" in page) == (200, True)


async def test_languages_without_a_kernel_are_refused(world: World, ada: str) -> None:
    made = inside(await world.create(ada), 49_999)
    status, found = await world.send("POST", "/execute", made, json={"code": "1", "language": "r"})
    assert (status, "r-cran-irkernel" in found["message"], "javascript" in found["message"]) == (400, True, True)
    assert (await world.send("POST", "/execute", made, json={"code": "1", "context_id": "nobody"}))[0] == 404
    status, lines = await world.send("POST", "/execute", made, json={"code": "6 * 7"})
    shown = [json.loads(line) for line in lines.splitlines()]
    assert [one["type"] for one in shown] == ["number_of_executions", "result", "end_of_execution"]
    assert (shown[1]["text"], shown[1]["is_main_result"]) == ("42", True)


async def test_variables_of_one_execution_are_undone_in_each_language(world: World, ada: str) -> None:
    made = inside(await world.create(ada), 49_999)
    readings = {
        "python": "import os; print(os.environ.get('MODE'), os.environ['HOME'])",
        "js": "console.log(process.env.MODE, process.env.HOME)",
        "ts": "console.log(process.env.MODE, process.env.HOME)",
        "bash": "echo $MODE $HOME",
    }
    for language, code in readings.items():
        values = {"code": code, "language": language}
        texts: list[str] = []
        for variables in ({}, {"MODE": "it's", "HOME": "/else"}, {}):
            _, lines = await world.send("POST", "/execute", made, json={**values, "env_vars": variables})
            shown = [json.loads(line) for line in lines.splitlines()]
            texts.append("".join(one["text"] for one in shown if one["type"] == "stdout"))
        assert texts[1] == "it's /else\n", language
        assert (texts[0], "it's" in texts[0]) == (texts[2], False)
    status, contexts = await world.send("GET", "/contexts", made)
    assert [context["language"] for context in contexts] == ["python", "javascript", "typescript", "bash"]
    refused = {"code": "1", "language": "bash", "env_vars": {"no-name": "x"}}
    assert (status, (await world.send("POST", "/execute", made, json=refused))[0]) == (200, 400)


async def test_a_domain_has_a_certificate_and_the_variables_that_clients_need() -> None:
    async with open_world(e2b_domain="mesh.localhost") as world:
        variables = world.mesh.e2b
        host = variables["E2B_DOMAIN"]
        assert host.startswith("mesh.localhost:")
        trust = ssl.create_default_context(cafile=variables["SSL_CERT_FILE"])
        port = host.partition(":")[2]
        made = await world.create(await world.key("ada"))
        assert made["domain"] == host
        name = f"49983-{made['sandboxID']}.mesh.localhost"
        url = f"https://127.0.0.1:{port}/health"
        headers = {"Host": f"{name}:{port}"}
        async with world.http.get(url, headers=headers, ssl=trust, server_hostname=name) as response:
            assert response.status == 204
        async with httpx2.AsyncClient(http2=True, verify=trust) as http:
            answer = await http.get(url, headers=headers, extensions={"sni_hostname": name})
            assert (answer.http_version, answer.status_code) == ("HTTP/2", 204)

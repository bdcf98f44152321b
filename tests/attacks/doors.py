"""E2B's routes: values of other types than its published ones, and ids of what is another's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.attacks.tally import Tally
from tests.attacks.target import Target, object_of
from tests.mesh.doors.door_scopes import JUPYTER, routes

TYPES: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("POST", "/v2/sandboxes"): (
        *("templateID", "timeout", "autoPause", "secure", "allow_internet_access", "metadata", "envVars", "network"),
        *("mcp", "volumeMounts", "autoResume"),
    ),
    ("POST", "/sandboxes/{id}/timeout"): ("timeout",),
    ("POST", "/sandboxes/{id}/refreshes"): ("duration",),
    ("POST", "/sandboxes/{id}/connect"): ("timeout",),
    ("POST", "/sandboxes/{id}/resume"): ("timeout", "autoPause"),
    ("POST", "/sandboxes/{id}/snapshots"): ("name",),
    ("POST", "/v3/templates"): ("name", "tags", "cpuCount", "memoryMB"),
    ("POST", "/templates/tags"): ("target", "tags"),
    ("POST", "/volumes"): ("name",),
}
"""The fields that E2B publishes of the bodies of routes."""

VALUES: Final[tuple[Any, ...]] = (
    *(-1, 1e308, 10**30, "²", "\0", "../../etc/passwd", "\ud800", "x" * 70_000, [[]], ["\0"]),
    *({"a": {"a": 1}}, {"\0": "x"}, {"allowOut": ["²"]}, {"github/x/y": {"runCmd": 5}}, [{"name": "..", "path": "/"}]),
)
_TOKENS: Final = ("envdAccessToken", "trafficAccessToken")
_REFUSED: Final = (501, 502, 503, 511)
"""No faults of the server: not offered, a sandbox that is gone as E2B says it, and SWE-ReX's own status."""


async def send_wrong_types(target: Target, tally: Tally) -> None:
    """Send each published field with values that it does not take."""
    headers = {"X-API-KEY": target.world.secrets["bob's key"], "Content-Type": "application/json"}
    _, text = await target.get("/v2/sandboxes", method="POST", headers=headers, data=b'{"timeout": 3000}')
    own = json.loads(text)["sandboxID"]
    for (method, path), names in TYPES.items():
        for name in names:
            for value in VALUES:
                body = json.dumps(
                    {"name": "mine", "target": "mine", "tags": ["a"], "timeout": 60, name: value}
                ).encode()
                place = path.replace("{id}", own)
                status, text = await target.get(place, method=method, headers=headers, data=body)
                tally.note(f"{method} {path} {name}={value!r:.40}: {status}", held=status < 500 or status in (501, 503))
                found = object_of(text)
                made = found.get("sandboxID", own) if status == 201 else own
                if made != own:
                    await target.get(f"/sandboxes/{made}", method="DELETE", headers=headers)


async def name_anothers(target: Target, tally: Tally) -> None:
    """Send each route of each door with a key of bob's, and without one, and what is ada's."""
    own, secret = target.made["sandboxID"], [target.made[name] for name in _TOKENS if target.made.get(name)]
    for key in (target.world.secrets["bob's key"], target.world.secrets["bob's sandbox"], ""):
        shown = {"X-API-KEY": key, "Authorization": f"Bearer {key}"} if key else {}
        for door, method, path in await routes(Path("/nonexistent")):
            one = target.kernel if door == "jupyter" else own
            place = path.replace("{id}", one).replace("{identity}", f"sb_{own}").replace("{base}", "base")
            place = place.replace("{", "").replace("}", "")
            body = {"identity": f"sb_{own}", "sandboxId": own, "name": "x", "tool_name": "run_shell_command"}
            data = None if method == "GET" else json.dumps({**body, "arguments": {"command": "true"}})
            headers = {**shown, "E2b-Sandbox-Id": own} if door == "e2b" and not key else shown
            status, text = await target.get(place, method=method, headers=headers, data=data, allow_redirects=False)
            leaks = any(one in text for one in secret)
            held = not leaks and (status < 500 or status in _REFUSED)
            tally.note(f"{door} {method} {path}: {status}", held=held)
    adas = target.world.secrets["ada's key"]
    status, text = await target.get(f"/sandboxes/{own}", headers={"X-API-KEY": adas})
    tally.note("ada's sandbox runs on", held=status == 200 and json.loads(text)["state"] == "running")
    status, text = await target.get(f"{JUPYTER}kernels/{target.kernel}", headers={"Authorization": f"token {adas}"})
    tally.note("ada's kernel runs on", held=status == 200 and json.loads(text)["execution_state"] == "idle")

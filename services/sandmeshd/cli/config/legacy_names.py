"""Names of settings that users of AgentScope Runtime know: what each means here, or why it means nothing.

Their names and forms are those of https://runtime.agentscope.io/en/sandbox/advanced.html, in a file as they are or with
our prefix before them, in the environment with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from sandmesh.errors import InvalidArgument
from sandmesh.shared.numbers import decimal
from sandmeshd.cli.config.sources import PREFIX, RawValue

Texts = Mapping[str, str]
Rule = Callable[[Texts], dict[str, object]]

_BOOL: Final = TypeAdapter(bool)
_OFF: Final = ("false", "0", "no", "off", "f", "n")
_INTERNAL: Final = "the mesh names its own keys in the store; SANDMESH_MESH_ID keeps meshes apart. Leave it out"

REFUSED: Final[Mapping[str, str]] = {
    "REDIS_PORT_KEY": _INTERNAL,
    "REDIS_CONTAINER_POOL_KEY": _INTERNAL,
}
"""Names that are known and have no meaning here: they stop the start with this reason, unless set to their default."""

IGNORED: Final[Mapping[str, str]] = {
    "K8S_": "it is about Kubernetes, and another driver is chosen",
    "KUBECONFIG_PATH": "it is about Kubernetes, and another driver is chosen",
    "AGENT_RUN_": "it is about AgentRun, and another driver is chosen",
    "FC_": "it is about Function Compute, and another driver is chosen",
    "AGENTBAY_": "AgentbaySandbox reads it from its own program's environment: no mesh takes part in its sandboxes",
}
"""The beginnings of names of settings that this mesh does not have, with the reason why they are ignored."""

_KUBERNETES: Final[Mapping[str, str]] = {
    "K8S_NAMESPACE": "kubernetes_namespace",
    "KUBECONFIG_PATH": "kubernetes_kubeconfig",
}
"""What old names mean where the driver is kubernetes, as CONTAINER_DEPLOYMENT=k8s chooses it."""

_CLOUDS: Final[Mapping[str, str]] = {"fc": "FC_", "agentrun": "AGENT_RUN_"}
"""How the names about a cloud begin, by driver; those that have a meaning are the driver's own."""

_NETWORKS: Final = ("VPC_ID", "VSWITCH_IDS", "SECURITY_GROUP_ID")
_NO_NETWORK: Final = "sandboxes of the {} driver are in no network: they reach others only through the mesh"

_MOUNT_DIR: Final = "sessions_mount_dir"
OLD_DEFAULTS: Final[Mapping[str, str]] = {
    "REDIS_PORT_KEY": "_agent_runtime_container_occupied_ports",
    "REDIS_CONTAINER_POOL_KEY": "_agent_runtime_container_container_pool",
    "K8S_NAMESPACE": "default",
}
"""The values that those names had by default: set to them they are accepted, and the mesh logs it when it starts."""

_SAME: Final = frozenset({"WORKERS", "BEARER_TOKEN", "FILE_SYSTEM", "STORAGE_FOLDER", "READONLY_MOUNTS", "PORT_RANGE"})
"""Names that mean the same here."""

UNLIMITED: Final = 100_000
"""The most sandboxes that a mesh can be set to: what no limit means."""


def _listen(texts: Texts) -> dict[str, object]:
    port = texts.get("PORT", "8000")
    if decimal(port, 65535) is None:
        raise ValueError(f"PORT is {port!r}, not a port")
    host = texts.get("HOST", "127.0.0.1")
    return {"listen": (f"[{host}]:{port}" if ":" in host else f"{host}:{port}",)}


def _pools(texts: Texts) -> dict[str, object]:
    size = texts.get("POOL_SIZE", "1")
    if decimal(size, UNLIMITED) is None:
        raise ValueError(f"POOL_SIZE is {size!r}, not a number from 0 to {UNLIMITED}")
    return {"pools": {name: int(size) for name in _types(texts.get("DEFAULT_SANDBOX_TYPE", "base")) if int(size)}}


def _types(text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    try:
        listed: object = json.loads(text)
    except ValueError:
        listed = None
    names = cast("list[object]", listed) if isinstance(listed, list) else [None]
    if not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"DEFAULT_SANDBOX_TYPE is {text!r}: it must be a type, types with commas, or a JSON list of types"
        )
    return cast("list[str]", names)


def _redis(texts: Texts) -> dict[str, object]:
    if not _BOOL.validate_python(texts.get("REDIS_ENABLED", "false")):
        others = sorted(set(texts) - {"REDIS_ENABLED"})
        if others and "REDIS_ENABLED" not in texts:
            raise ValueError(f"{others[0]} is set, but SANDMESH_REDIS_ENABLED is not true")
        return {}
    user, password = quote(texts.get("REDIS_USER", ""), safe=""), quote(texts.get("REDIS_PASSWORD", ""), safe="")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    port, database = texts.get("REDIS_PORT", "6379"), texts.get("REDIS_DB", "0")
    if decimal(port, 65535) is None or decimal(database, 65535) is None:
        raise ValueError("REDIS_PORT and REDIS_DB must be numbers")
    return {"redis_url": f"redis://{login}{texts.get('REDIS_SERVER', 'localhost')}:{port}/{database}"}


def _cleanup(texts: Texts) -> dict[str, object]:
    return {"keep_sandboxes": not _BOOL.validate_python(texts["AUTO_CLEANUP"])}


def _debug(texts: Texts) -> dict[str, object]:
    return {"log_level": "DEBUG"} if _BOOL.validate_python(texts["DEBUG"]) else {}


def _mesh_id(texts: Texts) -> dict[str, object]:
    return {"mesh_id": texts["CONTAINER_PREFIX_KEY"].replace("_", "-").strip("-").lower()}


def _heartbeat(texts: Texts) -> dict[str, object]:
    scan = texts.get("HEARTBEAT_SCAN_INTERVAL", texts.get("WATCHER_SCAN_INTERVAL"))
    if scan is not None and _is_zero(scan):
        return {"idle_seconds": 0}
    found = {"idle_seconds": texts.get("HEARTBEAT_TIMEOUT"), "sweep_seconds": scan}
    return {name: text for name, text in found.items() if text is not None}


def _maximum(texts: Texts) -> dict[str, object]:
    most = texts["MAX_SANDBOX_INSTANCES"]
    return {"max_sandboxes": UNLIMITED if _is_zero(most) else most}


def _mount_dir(texts: Texts) -> dict[str, object]:
    if _BOOL.validate_python(texts["ALLOW_MOUNT_DIR"]):
        raise ValueError("name the directories that sandboxes may have in SANDMESH_WORKSPACE_ROOTS, and leave it out")
    return {}


def _is_zero(text: str) -> bool:
    try:
        return float(text) == 0
    except ValueError:
        return False


def _same(setting: str) -> Rule:
    return lambda texts: {setting: next(iter(texts.values()))}


RULES: Final[Mapping[tuple[str, ...], Rule]] = {
    ("HOST", "PORT"): _listen,
    ("DEBUG",): _debug,
    ("DEFAULT_MOUNT_DIR",): _same("workspaces_directory"),
    ("DEFAULT_SANDBOX_TYPE", "POOL_SIZE"): _pools,
    ("AUTO_CLEANUP",): _cleanup,
    ("CONTAINER_PREFIX_KEY",): _mesh_id,
    ("CONTAINER_DEPLOYMENT",): _same("driver"),
    ("HEARTBEAT_TIMEOUT", "HEARTBEAT_SCAN_INTERVAL", "WATCHER_SCAN_INTERVAL"): _heartbeat,
    ("HEARTBEAT_LOCK_TTL",): _same("owner_grace_seconds"),
    ("MAX_SANDBOX_INSTANCES",): _maximum,
    ("RELEASE_KET_TTL",): _same("event_seconds"),
    ("ALLOW_MOUNT_DIR",): _mount_dir,
    ("REDIS_ENABLED", "REDIS_SERVER", "REDIS_PORT", "REDIS_DB", "REDIS_USER", "REDIS_PASSWORD"): _redis,
    ("OSS_ENDPOINT",): _same("storage_endpoint"),
    ("OSS_ACCESS_KEY_ID",): _same("storage_key_id"),
    ("OSS_ACCESS_KEY_SECRET",): _same("storage_key_secret"),
    ("OSS_BUCKET_NAME",): _same("storage_bucket"),
}
"""The rules that turn old names into settings; values that do not fit are a ValueError."""

MEANINGS: Final[Mapping[str, str]] = {
    "HOST": "listen", "PORT": "listen", "DEBUG": "log_level",
    "DEFAULT_MOUNT_DIR": "workspaces_directory", "DEFAULT_SANDBOX_TYPE": "pools", "POOL_SIZE": "pools",
    "AUTO_CLEANUP": "keep_sandboxes", "CONTAINER_PREFIX_KEY": "mesh_id", "CONTAINER_DEPLOYMENT": "driver",
    "HEARTBEAT_TIMEOUT": "idle_seconds", "HEARTBEAT_SCAN_INTERVAL": "sweep_seconds",
    "WATCHER_SCAN_INTERVAL": "sweep_seconds", "RELEASE_KET_TTL": "event_seconds", "ALLOW_MOUNT_DIR": "workspace_roots",
    "HEARTBEAT_LOCK_TTL": "owner_grace_seconds", "MAX_SANDBOX_INSTANCES": "max_sandboxes", "REDIS_ENABLED": "redis_url",
    "REDIS_SERVER": "redis_url", "REDIS_PORT": "redis_url", "REDIS_DB": "redis_url", "REDIS_USER": "redis_url",
    "REDIS_PASSWORD": "redis_url", "OSS_ENDPOINT": "storage_endpoint", "OSS_ACCESS_KEY_ID": "storage_key_id",
    "OSS_ACCESS_KEY_SECRET": "storage_key_secret", "OSS_BUCKET_NAME": "storage_bucket",
}  # fmt: skip
"""The setting that each old name is about."""


DISTINCTIVE: Final = frozenset(
    {
        "AUTO_CLEANUP", "CONTAINER_DEPLOYMENT", "CONTAINER_PREFIX_KEY", "DEFAULT_MOUNT_DIR", "DEFAULT_SANDBOX_TYPE",
        "MAX_SANDBOX_INSTANCES", "READONLY_MOUNTS", "REDIS_CONTAINER_POOL_KEY",
    }
)  # fmt: skip
"""Names that hardly another program has."""


def is_old_name(name: str) -> bool:
    """Return whether a name, without our prefix, is one of AgentScope Runtime."""
    return name in MEANINGS or name in _SAME or is_without_effect(name)


def is_without_effect(name: str) -> bool:
    """Return whether a name is known and has no meaning here."""
    return name in REFUSED or name.startswith(tuple(IGNORED))


def ignored_names(raw: Mapping[str, RawValue]) -> dict[str, str]:
    """Return the names that are about a driver, cloud or store which is not chosen, each with the reason."""
    found = {
        name: next(why for prefix, why in IGNORED.items() if name.startswith(prefix))
        for name, one in raw.items()
        if name.startswith(tuple(IGNORED)) and one.text not in ("", OLD_DEFAULTS.get(name))
    }
    if _is_kubernetes(raw):
        found = {name: why for name, why in found.items() if name not in _KUBERNETES}
    for driver in _chosen(raw) & _CLOUDS.keys():
        prefix = _CLOUDS[driver]
        found = {name: why for name, why in found.items() if not name.startswith(prefix)}
        networks = [f"{prefix}{name}" for name in _NETWORKS]
        found |= {name: _NO_NETWORK.format(driver) for name in networks if name in raw and raw[name].text}
    system = raw["FILE_SYSTEM"].text if "FILE_SYSTEM" in raw else ""
    if system != "oss":
        why = f"it is about oss, and {PREFIX}FILE_SYSTEM is {system or 'not set'}"
        found |= {name: why for name in raw if name.startswith("OSS_") and name in MEANINGS}
    if "REDIS_ENABLED" in raw and raw["REDIS_ENABLED"].text.lower() in _OFF:
        why = f"{PREFIX}REDIS_ENABLED is {raw['REDIS_ENABLED'].text}"
        found |= {
            name: why for name in raw if name.startswith("REDIS_") and MEANINGS.get(name) and name[6:] != "ENABLED"
        }
    return found


def translate(raw: Mapping[str, RawValue]) -> dict[str, tuple[object, str]]:
    """Return the settings that old names stand for, each with its source. Empty texts are ignored.

    Raises:
        InvalidArgument: A value does not fit, or the name has no meaning here; the message says what to do.
    """
    for name, one in raw.items():
        _check_refused(name, one)
    ignored = {name for name in raw if name.startswith("OSS_")} & set(ignored_names(raw))
    old = {name: one for name, one in raw.items() if one.text != "" and name in MEANINGS and name not in ignored}
    found: dict[str, tuple[object, str]] = {}
    for names, rule in RULES.items():
        texts = {name: old[name].text for name in names if name in old}
        if texts:
            _check_single(texts, raw)
            source = ", ".join(sorted({old[name].source for name in texts}))
            found.update({setting: (value, source) for setting, value in _apply(rule, texts).items()})
    if _is_kubernetes(raw):
        if "driver" in found:
            found["driver"] = ("kubernetes", found["driver"][1])
        meant = {setting: raw[name] for name, setting in _KUBERNETES.items() if name in raw and raw[name].text}
        found |= {setting: (one.text, one.source) for setting, one in meant.items()}
    return found


def _chosen(raw: Mapping[str, RawValue]) -> set[str]:
    return {raw[name].text for name in ("CONTAINER_DEPLOYMENT", "DRIVER") if name in raw}


def _is_kubernetes(raw: Mapping[str, RawValue]) -> bool:
    return bool(_chosen(raw) & {"k8s", "kubernetes"})


def unused_names(raw: Mapping[str, RawValue], driver: str, *, keeps_directories: bool) -> dict[str, str]:
    """Return the names that are set to their default and have no effect, each with the reason."""
    defaults = {name: one for name, one in raw.items() if one.text in _defaults(name)}
    used = _KUBERNETES if _is_kubernetes(raw) else {}
    found = {name: REFUSED.get(name) or IGNORED["K8S_"] for name in defaults if name not in used}
    mounts = raw.get("DEFAULT_MOUNT_DIR")
    if mounts is not None and mounts.text == _MOUNT_DIR and not keeps_directories:
        found["DEFAULT_MOUNT_DIR"] = f"the driver {driver} keeps workspaces in its containers"
    return found


def _apply(rule: Rule, texts: Texts) -> Mapping[str, Any]:
    try:
        return rule(texts)
    except ValidationError:
        raise InvalidArgument(
            f"{_variables(texts)} must be true or false, not {next(iter(texts.values()))!r}"
        ) from None
    except ValueError as error:
        raise InvalidArgument(f"{_variables(texts)}: {error}") from None


def _defaults(name: str) -> tuple[str, ...]:
    """Return the values that a name without effect had by default, in the documentation and in the package."""
    default = OLD_DEFAULTS.get(name)
    return () if default is None else (default, default.replace("_agent_runtime_", "_runtime_sandbox_"))


def _check_refused(name: str, one: RawValue) -> None:
    if name in REFUSED and one.text not in ("", *_defaults(name)):
        message = f"{PREFIX}{name} (in {one.source}) has no effect here: {REFUSED[name]}"
        raise InvalidArgument(message, {"setting": f"{PREFIX}{name}", "fix": REFUSED[name]})


def _check_single(texts: Texts, raw: Mapping[str, RawValue]) -> None:
    for setting in {MEANINGS[name].upper() for name in texts}:
        if setting in raw and setting not in texts:
            message = f"{_variables(texts)} and {PREFIX}{setting} mean the same setting: leave one of them out"
            raise InvalidArgument(message, {"setting": f"{PREFIX}{setting}"})


def _variables(texts: Texts) -> str:
    return ", ".join(f"{PREFIX}{name}" for name in texts)

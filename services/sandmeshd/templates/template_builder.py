"""Templates from definitions: what a definition omits comes from the shipped template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from pydantic import ValidationError

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmeshd.contracts.mcp_config import check_template_config
from sandmeshd.templates.model import (
    TAKEN,
    WITH_PROGRAMS,
    OwnTool,
    PythonEnvironment,
    Template,
    TemplateLimits,
    TrainingEnvironment,
    image_stem,
)

LEVELS = ("low", "medium", "high")
_IDLE_ACTIONS: Final = {sandbox_pb2.IDLE_ACTION_RELEASE: "release", sandbox_pb2.IDLE_ACTION_PAUSE: "pause"}
# Pinned, so that a sandbox of next year is the same as one of today.
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[a-z0-9,_-]+\])?==[A-Za-z0-9.+!_-]+")


def make_template(definition: pb.TemplateDefinition, shipped: Mapping[str, Template]) -> Template:
    """Return the template of a definition.

    Raises:
        InvalidArgument: A value is invalid; the message names the template and the value.
    """
    name = definition.name
    parent = _parent(definition, shipped)
    imaged = shipped.get(image_template(definition.image, shipped), parent)
    level = definition.security_level or "medium"
    if level not in LEVELS:
        raise _invalid(name, f"security_level must be one of {', '.join(LEVELS)}, not {level!r}", "security_level")
    groups = tuple(dict.fromkeys((*imaged.tool_groups, *parent.tool_groups)))
    values: dict[str, object] = {
        "name": name,
        "description": definition.description or parent.description,
        "tool_groups": groups,
        "python": _python(definition, imaged),
        "system": tuple(dict.fromkeys((*imaged.system, *parent.system, *definition.system))),
        "node_packages": tuple(dict.fromkeys((*imaged.node_packages, *parent.node_packages))),
        "variables": {**imaged.variables, **parent.variables, **definition.environment},
        "network": _network(definition, parent, level),
        "mcp_config": _servers(definition, groups) or imaged.mcp_config or parent.mcp_config,
        "image": definition.image,
        "image_is_shipped": not definition.image or bool(image_template(definition.image, shipped)),
        "limits": _limits(definition.limits),
        "security_level": level,
        "call_seconds": _seconds(definition, "call_timeout"),
        "runtime_config": dict(definition.runtime_config),
        "tools": tuple(_tool(name, tool) for tool in definition.tools),
        "on_demand": imaged.on_demand or bool(definition.requirements),
        "environments": {**imaged.environments, **parent.environments, **_environments(definition)},
        "data": imaged.data or parent.data,
        "root": definition.root if definition.HasField("root") else parent.root,
        "scratch": _scratch(definition, (*imaged.scratch, *parent.scratch)),
        "idle_timeout": _seconds(definition, "idle_timeout") or parent.idle_timeout,
        "on_idle": _IDLE_ACTIONS.get(definition.on_idle, parent.on_idle),
    }
    try:
        return Template.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        raise _invalid(name, f"{field}: {problem['msg']}", field) from None


def image_template(image: str, shipped: Mapping[str, Template]) -> str:
    """Return the shipped template that an image is named after (`registry/space/runtime-sandbox-NAME:tag`), or "".

    The image with Node.js, `NAME-node`, belongs to the same template.
    """
    last = image_stem(image).removesuffix(WITH_PROGRAMS)
    return next((name for name in shipped if last in (f"runtime-sandbox-{name}", f"sandmesh-{name}", name)), "")


def _parent(definition: pb.TemplateDefinition, shipped: Mapping[str, Template]) -> Template:
    extends = definition.extends or image_template(definition.image, shipped) or "base"
    if extends not in shipped:
        known = ", ".join(shipped)
        raise _invalid(definition.name, f"extends must be one of {known}, not {extends!r}", "extends")
    return shipped[extends]


def _network(definition: pb.TemplateDefinition, parent: Template, level: str) -> str | tuple[str, ...]:
    if not definition.HasField("network"):
        return "none" if level == "high" else parent.network
    grant = definition.network
    if grant.mode == sandbox_pb2.NETWORK_MODE_NONE:
        return "none"
    public = ("public",) if grant.mode == sandbox_pb2.NETWORK_MODE_PUBLIC else ()
    return (*public, *grant.hosts)


def _python(definition: pb.TemplateDefinition, imaged: Template) -> PythonEnvironment:
    for line in definition.requirements:
        if not _REQUIREMENT.fullmatch(line):
            rule = "a name with a version, as 'gymnasium==1.4.0'"
            raise _invalid(definition.name, f"each of requirements must be {rule}, not {line!r}", "requirements")
    requirements = dict.fromkeys((*imaged.python.requirements, *definition.requirements))
    return imaged.python.model_copy(update={"requirements": tuple(requirements)})


def _environments(definition: pb.TemplateDefinition) -> dict[str, TrainingEnvironment]:
    try:
        for name, one in definition.environments.items():
            compile(one.source, f"<environment {name}>", "exec")
        return {
            name: TrainingEnvironment(target=one.target, source=one.source)
            for name, one in definition.environments.items()
        }
    except (ValidationError, SyntaxError) as error:
        raise _invalid(definition.name, f"environments: {error}", "environments") from None


def _scratch(definition: pb.TemplateDefinition, shipped: Iterable[str]) -> tuple[str, ...]:
    taken = TAKEN.intersection(definition.scratch)
    if taken:
        reason = f"scratch names {min(taken)}, which every sandbox has: choose another directory"
        raise _invalid(definition.name, reason, "scratch")
    return tuple(dict.fromkeys((*shipped, *definition.scratch)))


def _limits(limits: sandbox_pb2.Limits) -> TemplateLimits:
    return TemplateLimits(
        memory_bytes=limits.memory_bytes,
        cpu_millis=limits.cpu_millis,
        pids=limits.pids,
        file_bytes=limits.file_bytes,
        disk_bytes=limits.disk_bytes,
    )


def _seconds(definition: pb.TemplateDefinition, field: Literal["call_timeout", "idle_timeout"]) -> float | None:
    if not definition.HasField(field):
        return None
    duration = definition.call_timeout if field == "call_timeout" else definition.idle_timeout
    return duration.ToNanoseconds() / 1e9


def _servers(definition: pb.TemplateDefinition, groups: Iterable[str]) -> str:
    try:
        check_template_config(definition.mcp_config_json, groups)
        return definition.mcp_config_json.decode()
    except (ValueError, AttributeError, InvalidArgument) as error:
        raise _invalid(definition.name, f"mcp_config: {error}", "mcp_config") from None


def _tool(template: str, tool: pb.ToolDefinition) -> OwnTool:
    try:
        schema = json.loads(tool.input_schema_json or b"{}")
        compile(tool.source, f"<tool {tool.name}>", "exec")
    except (ValueError, SyntaxError) as error:
        raise _invalid(template, f"the tool {tool.name!r} cannot be parsed: {error}", "tools") from None
    if not isinstance(schema, dict):
        raise _invalid(template, f"the schema of the tool {tool.name!r} is not an object", "tools")
    return OwnTool(name=tool.name, description=tool.description, input_schema=json.dumps(schema), source=tool.source)


def _invalid(template: str, reason: str, field: str) -> InvalidArgument:
    return InvalidArgument(f"the template {template!r} is invalid: {reason}", {"template": template, "field": field})

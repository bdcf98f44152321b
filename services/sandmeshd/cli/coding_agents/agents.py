"""The coding agents: what starts each, and how it is given its key, its settings and a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

from sandmesh.errors import InvalidArgument

_NODE: Final = "/opt/node/node_modules"


@dataclass(frozen=True)
class ModelApi:
    """An API of models: the variables of its key and its address, and the address by default."""

    key: str
    address: str
    default: str

    def endpoint(self, environment: Mapping[str, str]) -> str:
        """Return the address that the environment names, else the default.

        Raises:
            InvalidArgument: It is not an https URL.
        """
        url = environment.get(self.address) or self.default
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            reason = "the key is put only into requests over TLS, so it must be like https://host"
            raise InvalidArgument(f"{self.address} is {url!r}: {reason}", {"field": self.address})
        return url

    def host(self, environment: Mapping[str, str]) -> str:
        """Return the host and port of its address, as grants name them.

        Raises:
            InvalidArgument: As `endpoint`.
        """
        parts = urlsplit(self.endpoint(environment))
        name = parts.hostname or ""
        return f"{f'[{name}]' if ':' in name else name}:{parts.port or 443}"


ANTHROPIC: Final = ModelApi("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com")
CLAUDE_LOGIN: Final = ModelApi("CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL", "https://api.anthropic.com")
OPENAI: Final = ModelApi("OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1")
GEMINI: Final = ModelApi("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com")


@dataclass(frozen=True)
class CodingAgent:
    """A coding agent, which is the template of its name."""

    name: str
    title: str
    program: str
    """What starts it, in shell syntax."""
    apis: tuple[ModelApi, ...]
    """The APIs that it can use; the first is the default."""
    always: tuple[str, ...] = ()
    """Arguments of every start: it may do all it wants, since the sandbox bounds it."""
    task: tuple[str, ...] = ()
    """Arguments before a task that it carries out without questions."""
    resume: tuple[str, ...] = ()
    """Arguments, before those, that continue the last conversation."""
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    settings: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Files below its home that are written unless they exist; {url} stands for the API's address."""
    caches: tuple[str, ...] = ()
    """Patterns of what it keeps for itself in the folder, which is not part of its changes."""

    def api(self, environment: Mapping[str, str]) -> ModelApi:
        """Return the first API whose key the environment has, else the default one."""
        return next((api for api in self.apis if environment.get(api.key)), self.apis[0])

    def arguments(self, task: str, extra: list[str], *, resumed: bool) -> list[str]:
        """Return the command line of a start."""
        before = self.resume if resumed else ()
        ending = (*self.task, task) if task else ()
        words = [*before, *self.always, *extra, *ending]
        return ["sh", "-c", f'exec {self.program} "$@"', self.name, *words]

    def start_variables(self, api: ModelApi, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of its process besides the key's."""
        own = dict(self.variables)
        if environment.get(api.address):
            own[api.address] = api.endpoint(environment)
        return own

    def settings_script(self, api: ModelApi, environment: Mapping[str, str]) -> str:
        """Return a shell script that writes its settings where it has none."""
        url = api.endpoint(environment)
        return "".join(
            f'f="$HOME/{path}"; mkdir -p "$(dirname "$f")"; [ -e "$f" ] || cat > "$f" <<END\n'
            f"{text.replace('{url}', url)}\nEND\n"
            for path, text in self.settings.items()
        )


_TRUSTED: Final = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
# The last letters of the key by which it knows that its use was confirmed.
_APPROVED: Final = {"approved": ['$(printf %s "$ANTHROPIC_API_KEY" | tail -c 20)'], "rejected": list[str]()}
_CLAUDE_STATE: Final = json.dumps(
    {
        "hasCompletedOnboarding": True,
        "bypassPermissionsModeAccepted": True,
        "customApiKeyResponses": _APPROVED,
        "projects": {"/workspace": _TRUSTED},
    }
).replace('\\"', '"')
_CODEX_SETTINGS: Final = """model_provider = "api"

[model_providers.api]
name = "OpenAI"
base_url = "{url}"
env_key = "OPENAI_API_KEY"
wire_api = "responses"

[projects."/workspace"]
trust_level = "trusted"
"""
_GEMINI_SETTINGS: Final = json.dumps(
    {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
)
# Its histories, which it would keep in the folder.
_AIDER_SETTINGS: Final = """input-history-file: $HOME/.aider.input.history
chat-history-file: $HOME/.aider.chat.history.md
gitignore: false
analytics-disable: true
check-update: false
show-release-notes: false
"""
_OPENCODE_SETTINGS: Final = json.dumps({"permission": "allow", "autoupdate": False, "share": "disabled"})

AGENTS: Final = MappingProxyType(
    {
        agent.name: agent
        for agent in (
            CodingAgent(
                name="claude",
                title="Claude Code",
                program=f"{_NODE}/@anthropic-ai/claude-code-linux-*64/claude",
                apis=(ANTHROPIC, CLAUDE_LOGIN),
                always=("--dangerously-skip-permissions",),
                task=("--print",),
                resume=("--continue",),
                variables={"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
                settings={
                    ".claude.json": _CLAUDE_STATE,
                    ".claude/settings.json": json.dumps({"skipDangerousModePermissionPrompt": True}),
                },
            ),
            CodingAgent(
                name="codex",
                title="Codex",
                program=f"node {_NODE}/@openai/codex/bin/codex.js",
                apis=(OPENAI,),
                always=("--dangerously-bypass-approvals-and-sandbox",),
                task=("exec", "--skip-git-repo-check"),
                settings={".codex/config.toml": _CODEX_SETTINGS},
            ),
            CodingAgent(
                name="opencode",
                title="opencode",
                program=f"{_NODE}/opencode-linux-*64/bin/opencode",
                apis=(ANTHROPIC, OPENAI),
                task=("run",),
                variables={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
                settings={".config/opencode/opencode.json": _OPENCODE_SETTINGS},
            ),
            CodingAgent(
                name="gemini",
                title="Gemini CLI",
                program=f"node {_NODE}/@google/gemini-cli/bundle/gemini.js",
                apis=(GEMINI,),
                always=("--yolo",),
                task=("--prompt",),
                variables={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
                settings={".gemini/settings.json": _GEMINI_SETTINGS},
            ),
            CodingAgent(
                name="aider",
                title="aider",
                program="python3 -m aider",
                apis=(ANTHROPIC, OPENAI),
                task=("--yes-always", "--message"),
                resume=("--restore-chat-history",),
                # What is known of models comes with it.
                variables={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
                settings={".aider.conf.yml": _AIDER_SETTINGS},
                caches=(".aider.tags.cache.v*",),
            ),
        )
    }
)

"""The scripts of the store, read from package data."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib import resources

# In this order: each may use what is before it.
LIBRARY = ("base", "events", "usage", "quotas", "holdings", "capacity", "queue", "states")
# What may run while records are being rebuilt: it rebuilds them, or reports nothing that depends on them.
# Tokens, quotas and secrets are in no sandbox's labels: nothing of them is rebuilt, and they can be created meanwhile.
_TOKENS = {"access_create", "access_list", "access_read", "access_revoke", "access_revoked"}
_SNAPSHOTS = {"snapshot_forget", "snapshot_keep", "snapshot_room", "snapshot_survey"}
_QUOTAS = {"quota_set", "project_set", "projects_of", "calls_share", *_SNAPSHOTS}
# The time of sandboxes whose records are not rebuilt yet is counted when they are.
_USAGE = {"usage_totals"}
_AUDIT = {"audit_append", "audit_list"}
_SECRETS = {"secret_delete", "secret_list", "secret_read", "secret_set"}
UNGUARDED = frozenset(
    {
        "adopt",
        "capacity",
        "announce_exit",
        "generation",
        "open",
        "probe",
        "session_open",
        *_TOKENS,
        *_QUOTAS,
        *_AUDIT,
        *_USAGE,
        *_SECRETS,
    }
)
_DEFINED = re.compile(r"^local (?:function )?([\w, ]+)", re.MULTILINE)
_COMMENT = re.compile(r"--.*")
_GUARD = "local closed = recovering()\nif closed then return closed end\n"


@dataclass(frozen=True)
class Script:
    """A script: its whole source, what it uses of the library included, and the hash that a server knows it by."""

    source: str
    sha: str


def load_scripts() -> dict[str, Script]:
    """Read every script, by its file's name without the ending."""
    folder = resources.files("sandmeshd.store") / "scripts"
    library = [part for name in LIBRARY for part in (folder / "library" / f"{name}.lua").read_text().split("\n\n")]
    scripts: dict[str, Script] = {}
    for entry in folder.iterdir():
        name = entry.name.removesuffix(".lua")
        if name != entry.name:
            guard = "" if name in UNGUARDED else _GUARD
            scripts[name] = _script(_with_used(library, guard + entry.read_text()))
    return scripts


def _with_used(library: list[str], source: str) -> str:
    """Return a script with what it uses of the library: a server defines all functions of a script in each run."""
    used = _words(source)
    for part in reversed(library):
        defined = {name.strip() for names in _DEFINED.findall(part) for name in names.split(",")}
        if defined & used:
            source, used = f"{part.rstrip()}\n\n{source}", used | _words(part)
    return source


def _words(source: str) -> set[str]:
    return set(re.findall(r"\w+", _COMMENT.sub("", source)))


def _script(source: str) -> Script:
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())

"""Tools for the workspace's history, with the sandbox's own git.

The results have a structured form beside their text: `{"commit", "message", "changed"}`, `{"diffs": {path: diff}}` and
`{"logs": [{"commit", "author", "date", "message", "diff": {path: diff}}]}`.
"""

from __future__ import annotations

from typing import Annotated

from sandmesh._tools.declaration import Param, Tool, tool

Commit = Annotated[str | None, Param("As git names it: a hash, a branch, a tag, HEAD~1.", min_length=1)]


@tool("git")
class CommitChanges(Tool):
    """Commit every change in the workspace, new and removed files too; the first commit makes the repository.

    What .gitignore names is left out. If nothing changed, no commit is made and the last one is returned.
    """

    message: Annotated[str, Param("What was done and why.", min_length=1, max_length=30_000, pattern=r"\S")]


@tool("git")
class GenerateDiff(Tool):
    """Show what changed in the workspace since the last commit, or between two commits, file by file.

    With only commit_a: from that commit to the workspace as it is. New files that no commit has are part of it.
    """

    commit_a: Commit = None
    commit_b: Commit = None


@tool("git")
class GitLogs(Tool):
    """List the workspace's commits, the newest first, each with its author, time, message and what it changed."""

    limit: Annotated[int | None, Param("At most so many; none: all.", ge=1)] = None

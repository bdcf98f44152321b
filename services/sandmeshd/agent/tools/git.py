"""The tools that keep the workspace's history. Git runs as user code does: it obeys the repository's own hooks."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sandmesh._tools import Tool
from sandmesh._tools.git import CommitChanges, GenerateDiff, GitLogs
from sandmesh.api.call.v1 import call_pb2 as pb
from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.calls.call import Outcome, RunningCall
from sandmeshd.agent.calls.toolbox import Handler
from sandmeshd.agent.processes.capture import Captured
from sandmeshd.agent.processes.programs import Programs

_HEADER: Final = "diff --git "


def split_diff(shown: str) -> dict[str, str]:
    """Return each file's part of a diff by its path; a path that git quotes stays quoted.

    Nothing inside a part begins as a header does: each line of a file is preceded by a sign or a space.
    """
    parts: dict[str, str] = {}
    for part in f"\n{shown}".split(f"\n{_HEADER}")[1:]:
        path = _path(part.split("\n", 1)[0])
        # A file that became a link has two parts.
        parts[path] = parts.get(path, "") + f"{_HEADER}{part.rstrip(chr(10))}\n"
    return parts


def _path(names: str) -> str:
    # Both sides name the same file: "a/x b/x", or both in quotes.
    side = names[: (len(names) - 1) // 2]
    return f'"{side[3:]}' if side.startswith('"') else side[2:]


_GIT: Final = ("git", "--no-pager", "-c", "core.quotepath=off", "-c", "safe.directory=*")
_QUIET: Final = {"LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"}
_SOMEBODY: Final = ("-c", "user.name=sandbox", "-c", "user.email=sandbox@localhost")
_PLAIN: Final = (
    *("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--full-index"),
)
_LONGEST_WORDS: Final = 4000

# Git's own index stays as it is: what is new is looked for with a copy of it.
_AGAINST_WORKSPACE: Final = """
base=$1; shift
index=$(mktemp) || exit 1
trap 'rm -f "$index" "$index.lock"' EXIT
cp "$(git rev-parse --git-path index)" "$index" 2>/dev/null || rm -f "$index"
[ -n "$base" ] || base=$(git hash-object -t tree /dev/null) || exit 1
GIT_INDEX_FILE=$index git -c safe.directory=\\* -c core.safecrlf=false add -A || exit 1
GIT_INDEX_FILE=$index "$@" --cached "$base"
"""


class Git:
    """Commits, diffs and the log of one workspace, one at a time."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._one = asyncio.Lock()

    def handlers(self) -> Mapping[type[Tool], Handler]:
        """Return the handler of each tool."""
        return {CommitChanges: self.commit, GenerateDiff: self.diff, GitLogs: self.log}

    async def commit(self, request: CommitChanges, call: RunningCall) -> Outcome:
        """Commit whatever changed."""
        call.started()
        if "\0" in request.message:
            raise ToolFailure("A commit's message has no zero bytes.")
        async with self._one:
            if not self._is_there():
                await self._git(call, "-c", "init.defaultBranch=main", "init", "--quiet")
            before = await self._find(call, "HEAD")
            await self._check_merged(call)
            await self._git(call, "add", "-A")
            changed = not before or bool(await self._git(call, "diff", "--cached", "--raw", "--no-ext-diff", before))
            changed = changed and bool(before or await self._git(call, "ls-files"))
            if changed:
                await self._git(call, *await self._identity(call), "commit", "--quiet", "-m", request.message)
            return await self._finish_commit(call, before, request.message, changed=changed)

    async def diff(self, request: GenerateDiff, call: RunningCall) -> Outcome:
        """Show what changed between two commits, or from one to the workspace."""
        call.started()
        if request.commit_b is not None and request.commit_a is None:
            raise ToolFailure("commit_b needs commit_a: pass both, only commit_a, or neither.")
        async with self._one:
            if not self._is_there():
                raise ToolFailure("The workspace is not a git repository yet; commit_changes makes it one.")
            command = (*_GIT, "diff", *_PLAIN)
            if request.commit_a is None or request.commit_b is None:
                base = await self._find(call, request.commit_a or "HEAD", must=request.commit_a is not None)
                shown = await self._run(call, "/bin/sh", "-c", _AGAINST_WORKSPACE, "diff", base, *command)
            else:
                ends = [await self._find(call, name, must=True) for name in (request.commit_a, request.commit_b)]
                shown = await self._run(call, *command, *ends)
        return await _finish(call, shown or "Nothing changed.", {"diffs": split_diff(shown)})

    async def log(self, request: GitLogs, call: RunningCall) -> Outcome:
        """List the commits that lead to the last one."""
        call.started()
        async with self._one:
            head = await self._find(call, "HEAD") if self._is_there() else ""
            if not head:
                return await _finish(call, "There are no commits yet; commit_changes makes one.", {"logs": []})
            mark = secrets.token_hex(16)
            form = f"--format=tformat:{mark}%H%n%an%n%cI%n%B{mark}"
            most = [] if request.limit is None else [f"--max-count={request.limit}"]
            shown = await self._git(call, "log", "-p", "--root", "--diff-merges=first-parent", form, *most, *_PLAIN)
        commits = [_read_commit(*pair) for pair in _pairs(shown.split(mark)[1:])]
        return await _finish(call, "\n".join(map(_show, commits)), {"logs": [_plain(commit) for commit in commits]})

    def _is_there(self) -> bool:
        # Only what is there is looked at: a broken repository is never recreated.
        at = Path(self._programs.workspace, ".git")
        return at.is_symlink() or at.exists()

    async def _check_merged(self, call: RunningCall) -> None:
        unmerged = {line.split("\t", 1)[1] for line in (await self._git(call, "ls-files", "-u")).splitlines()}
        if unmerged:
            names = ", ".join(sorted(unmerged)[:20])
            raise ToolFailure(
                f"Nothing was committed: a merge left conflicts in {names}. Put these files right, then `git add` them "
                "with run_shell_command."
            )

    async def _identity(self, call: RunningCall) -> Sequence[str]:
        """Return the options that name an author where the user's own configuration names none."""
        email = await self._captured(call, *_GIT, "config", "user.email")
        return () if email.ended.exit_code == 0 and email.stdout.strip() else _SOMEBODY

    async def _find(self, call: RunningCall, name: str, *, must: bool = False) -> str:
        """Return a commit's hash; an empty text where there is none and none is required."""
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        found = await self._captured(call, *_GIT, *words)
        if found.ended.exit_code == 0:
            return found.stdout.decode().strip()
        if must:
            raise ToolFailure(f"There is no commit {name!r} here; git_logs lists those that there are.")
        await self._git(call, "rev-parse", "--git-dir")
        return ""

    async def _finish_commit(self, call: RunningCall, before: str, message: str, *, changed: bool) -> Outcome:
        commit = await self._find(call, "HEAD", must=True) if changed else before
        said = f"Committed {commit}: {message}" if changed else f"Nothing changed since {before or 'the beginning'}."
        return await _finish(call, said, {"commit": commit or None, "message": message, "changed": changed})

    async def _git(self, call: RunningCall, *words: str) -> str:
        return await self._run(call, *_GIT, *words)

    async def _run(self, call: RunningCall, *argv: str) -> str:
        done = await self._captured(call, *argv)
        if done.ended.exit_code != 0:
            said = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace")[-_LONGEST_WORDS:]
            raise ToolFailure(
                f"git could not do this ({_how(done)}): {said or 'it said nothing'}\n"
                "Nothing of the workspace's files was changed; run_shell_command runs git to put the repository right."
            )
        return done.stdout.decode(errors="replace")

    async def _captured(self, call: RunningCall, *argv: str) -> Captured:
        done = await self._programs.capture(argv, _QUIET, call)
        if done.ended.failure or done.ended.exit_code == 127:
            raise ToolFailure(
                f"This sandbox has no git that runs ({done.ended.failure or 'it is not installed'}): use a template or "
                "a host that has it, or keep copies with run_shell_command."
            )
        if call.stop_reason is not None:
            raise ToolFailure("The call was stopped while git ran; git_logs says what it had done.")
        return done


def _how(done: Captured) -> str:
    if done.ended.signal is not None:
        return f"ended by signal {done.ended.signal}"
    return f"exit code {done.ended.exit_code}"


def _pairs(pieces: Sequence[str]) -> list[tuple[str, str]]:
    return list(zip(pieces[::2], pieces[1::2], strict=True))


def _read_commit(about: str, shown: str) -> dict[str, str]:
    commit, author, date, message = about.split("\n", 3)
    return {"commit": commit, "author": author, "date": date, "message": message.strip(), "shown": shown.strip("\n")}


def _plain(commit: Mapping[str, str]) -> dict[str, Any]:
    diff = split_diff(commit["shown"])
    return {**{name: commit[name] for name in ("commit", "author", "date", "message")}, "diff": diff}


def _show(commit: Mapping[str, str]) -> str:
    message = "".join(f"    {line}\n" for line in commit["message"].splitlines())
    shown = f"\n{commit['shown']}\n" if commit["shown"] else ""
    return f"commit {commit['commit']}\nAuthor: {commit['author']}\nDate:   {commit['date']}\n\n{message}{shown}"


async def _finish(call: RunningCall, said: str, structured: Mapping[str, Any]) -> Outcome:
    await call.text(said, "stdout")
    return Outcome(reason=pb.END_REASON_EXITED, structured=json.dumps(structured).encode())

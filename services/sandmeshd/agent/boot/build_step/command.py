"""A command of a build: run in new namespaces as the image's user, with what root in an image may do."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from sandmeshd.agent.userland.core import isolation, syscalls
from sandmeshd.agent.userland.core.account import Account, find_account

_SCRIPT: Final = "/dev/shm/script"  # noqa: S108 - the step's own


class Command:
    """One command; it is forked while this process has one thread."""

    def __init__(self, step: Mapping[str, Any], command: Mapping[str, Any]) -> None:
        """Find its user.

        Raises:
            ValueError: The image lacks the user.
        """
        self._step = step
        self._command = command
        self._account = find_account(command["user"], None)

    def start(self) -> int:
        """Start it; return the pid of the process whose exit code is the command's."""
        child = os.fork()
        if child == 0:
            self._enter()
        return child

    def _enter(self) -> NoReturn:
        code = 125
        try:
            inner = isolation.enter_nested_namespaces(whole=True)
            if inner:
                code = _exit_code(os.waitpid(inner, 0)[1])
            else:
                isolation.hide(self._step["hidden"])
                code = self._be_first()
        except (OSError, ValueError) as error:
            os.write(self._step["output"], f"the command could not be isolated: {error}\n".encode())
        finally:
            os._exit(code)

    def _be_first(self) -> int:
        """Run the command as the child of this PID 1, whose end ends the namespace; return its exit code."""
        script = self._command["script"]
        if script:
            with open(os.open(_SCRIPT, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755), "w", encoding="utf-8") as file:
                file.write(script)
        self._account.settle(b64decode(self._step["filter"]))
        child = os.fork()
        if child == 0:
            self._execute(self._account)
        while True:
            pid, status = os.wait()
            if pid == child:
                return _exit_code(status)

    def _execute(self, account: Account) -> NoReturn:
        try:
            os.setsid()
            os.umask(0o022)
            output = self._step["output"]
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            syscalls.close_all_but([0, 1, 2])
            syscalls.set_dumpable(True)
            os.chdir(self._command["directory"])
            argv = [_SCRIPT] if self._command["script"] else self._command["argv"]
            os.execvpe(argv[0], argv, {"HOME": account.home, **self._command["environment"]})  # noqa: S606 - as given
        except OSError as error:
            os.write(2, f"{self._command['argv'][0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code

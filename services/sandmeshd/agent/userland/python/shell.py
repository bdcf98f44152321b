"""IPython, with what it shows and raises going to blocks instead of a terminal."""

from __future__ import annotations

import bdb
import errno
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sandmeshd.agent.userland.core import heap
from sandmeshd.agent.userland.python import charts, content_blocks, exception_report, home, output, tables

if TYPE_CHECKING:
    # IPython is the template's, not the mesh's: type checkers see these in its place.
    class _Anything:
        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
        @classmethod
        def instance(cls, *args: Any) -> Any: ...

    class InteractiveShell(_Anything):
        def should_run_async(self, raw_cell: str, **kwargs: Any) -> bool: ...
        def init_completer(self) -> None: ...
        def init_magics(self) -> None: ...
        def init_user_ns(self) -> None: ...
        def showsyntaxerror(self, filename: str | None = None, running_compiled_code: bool = False) -> None: ...
        def enable_matplotlib(self, gui: Any = None) -> Any: ...
        def _get_exc_info(self, exc_tuple: Any = None) -> tuple[Any, Any, Any]: ...

    class DisplayHook(_Anything): ...

    class DisplayPublisher(_Anything): ...

    class TransformerManager(_Anything):
        def do_token_transforms(self, lines: list[str]) -> list[str]: ...

    class JSONFormatter(_Anything): ...

    class HistoryManager(_Anything): ...

    class PrefilterManager(_Anything):
        checkers: list[Any]
        transformers: list[Any]

        def prefilter_lines(self, lines: str, continue_prompt: bool = False) -> str: ...

    class Macro(_Anything): ...

    class IPyAutocall(_Anything): ...

    class Config(_Anything): ...
else:
    from IPython.core.autocall import IPyAutocall
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.formatters import JSONFormatter
    from IPython.core.history import HistoryManager
    from IPython.core.inputtransformer2 import TransformerManager
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.macro import Macro
    from IPython.core.prefilter import PrefilterManager
    from traitlets.config import Config


_ESCAPES: Final = re.compile(r"[!%?]|^\s*[,;/]", re.MULTILINE)
"""What IPython's syntax beyond Python needs: a magic, a command, a question, or a line that begins as a quoted call."""
_WORD: Final = re.compile(r"\s*([\w.*]*)")
"""What a line begins with; IPython may take it for a command."""
_ASYNC: Final = re.compile(r"await|async")

_HEADLESS: Final = frozenset({None, "inline", "agg", "cairo", "pdf", "pgf", "ps", "svg", "template"})
"""The backends of matplotlib that need neither a window nor a notebook."""

_SHELL_TRAITS: Final = (
    "history_manager",
    "builtin_trap",
    "display_trap",
    "display_formatter",
    "input_transformer_manager",
    "input_transformers_post",
    "prefilter_manager",
    "magics_manager",
)
_HISTORY_TRAITS: Final = ("shell", "input_hist_parsed", "input_hist_raw", "db_input_cache", "output_hist_reprs")

_PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset})


class _Hook(DisplayHook):
    """Shows the value of a cell's last expression."""

    def __call__(self, result: object = None) -> None:
        """Send a value as blocks; keep it, and its text for %history. Images and tables are not kept in memory."""
        shell = self.shell
        self.check_for_underscore()
        parsed = shell.history_manager.input_hist_parsed
        # Whether a semicolon ends the cell is for its tokens to decide: they are not read where it has none.
        if result is None or (parsed and ";" in parsed[-1] and self.quiet()):
            return
        if type(result) in _PLAIN:
            # Only their text: computing other forms takes longer than the cell.
            text = shell.display_formatter.formatters["text/plain"]
            is_number = type(result) is int and text.type_printers.get(int) is shell.printer_of_int
            forms = {"text/plain": repr(result) if is_number else text(result)}
        else:
            forms, _ = self.compute_format_data(result)
        self.update_user_ns(result)
        self.fill_exec_result(result)
        if forms:
            shell.channel.show(content_blocks.bundle(forms))
        if "text/plain" in forms:
            shell.history_manager.output_hist_reprs[self.prompt_count] = forms["text/plain"]


class _Publisher(DisplayPublisher):
    """Shows what display() is given."""

    def publish(
        self, data: Mapping[str, Any], *_: object, transient: Any = None, update: bool = False, **__: object
    ) -> None:
        """Send an object's forms as blocks; those of a display with an id replace its last ones in an update."""
        described: dict[str, Any] = transient or {}
        display = described.get("display_id")
        blocks = content_blocks.bundle(data)
        if display is not None:
            blocks = content_blocks.of_display(blocks, str(display), replaces=update)
        self.shell.channel.place(blocks)

    def clear_output(self, wait: bool = False) -> None:
        """Replace what the cell wrote and showed so far by what follows; with `wait` once that comes."""
        self.shell.channel.clear(wait=wait)


class _Transformers(TransformerManager):
    """Reads a cell's tokens only where one may be more than Python: that takes as long as running a short cell."""

    def do_token_transforms(self, lines: list[str]) -> list[str]:
        """Return the lines as Python."""
        return super().do_token_transforms(lines) if _ESCAPES.search("".join(lines)) else lines


class _Prefilter(PrefilterManager):
    """Looks closer at a line only where its first word may be more than Python's."""

    def __init__(self, shell: Any, **kwargs: Any) -> None:
        super().__init__(shell=shell, **kwargs)
        self._own = len(self.checkers), len(self.transformers)

    def prefilter_lines(self, lines: str, continue_prompt: bool = False) -> str:
        """Return the lines as Python."""
        shell = self.shell
        found = _WORD.match(lines)
        word = found.group(1) if found else ""
        magics = shell.magics_manager
        if (
            _ESCAPES.search(lines)
            or "PYTHON-MODE" in lines
            or shell.autocall
            or word in magics.magics["line"]
            or word in magics.lazy_magics
            or isinstance(shell.user_ns.get(word), (Macro, IPyAutocall))
            or self._own != (len(self.checkers), len(self.transformers))
        ):
            return super().prefilter_lines(lines, continue_prompt)
        shell._last_input_line = lines  # noqa: SLF001 - IPython's own, by the parent's own method
        return lines.rstrip("\n")


class _History(HistoryManager):
    """Keeps what was run for %history and In, only in memory."""

    _i = _ii = _iii = _i00 = ""  # plain, as the shell's own below


class KernelShell(InteractiveShell):
    """A shell without terminal, history file and colours."""

    # Plain here: as traits, whose every change is checked and announced, they took a tenth of a short cell.
    execution_count = 1
    last_execution_succeeded = True
    last_execution_result: Any = None
    user_ns: Any = None
    """A plain one too, in place of a property."""
    _completer: Any = None
    _configurables: list[Any]
    _made = False

    def __init__(self) -> None:
        self.channel: output.KernelSocket | output.NoChannel = output.NoChannel()
        self.leaves = False
        self.report = b""
        """The last exception, encoded; empty once it was sent."""
        folder = home.own_folder()
        super().__init__(folder, config=_config(), displayhook_class=_Hook, display_pub_class=_Publisher)
        self.display_formatter.active_types = list(content_blocks.SHOWN)
        self.printer_of_int = self.display_formatter.formatters["text/plain"].type_printers.get(int)
        tables.register(self.display_formatter, JSONFormatter)
        charts.register(self.display_formatter, JSONFormatter)
        self.input_transformer_manager = _Transformers()
        _read_plainly(self, _SHELL_TRAITS)
        _read_plainly(self.displayhook, ("shell", "exec_result"))
        _read_plainly(self.history_manager, _HISTORY_TRAITS)
        # Its names stay in builtins, where each cell would put them and take them away again, twice.
        self.builtin_trap.__enter__()
        self._made = True

    def _showtraceback(self, etype: object, evalue: object, stb: list[str]) -> None:
        self.report = exception_report.encode(etype, evalue, stb)
        self.channel.show(content_blocks.texts("\n".join(stb) + "\n", "stderr"))

    def _get_exc_info(self, exc_tuple: Any = None) -> tuple[Any, Any, Any]:
        """Return an exception whose tracebacks, and those of what it came from, end where user code's frames do."""
        etype, value, traceback = super()._get_exc_info(exc_tuple)
        exception_report.trim(value)
        return etype, value, getattr(value, "__traceback__", traceback)

    def showsyntaxerror(self, filename: str | None = None, running_compiled_code: bool = False) -> None:
        """Show a syntax error; one of code that the cell compiled comes with the cell's own frames."""
        exception_report.trim(sys.exc_info()[1], callers=True)
        super().showsyntaxerror(filename, running_compiled_code)

    def init_user_ns(self) -> None:
        """Set in the namespace what Python's own `__main__` has: multiprocessing looks for its specification."""
        super().init_user_ns()
        self.user_ns["__spec__"] = self.user_ns_hidden["__spec__"] = None

    def enable_matplotlib(self, gui: Any = None) -> Any:
        """Show figures as pictures, whatever front end is asked for: there is none that could follow a live one."""
        if gui not in _HEADLESS:
            sys.stdout.write(f"%matplotlib {gui} needs a window or a notebook: figures are shown inline, as images\n")
            gui = "inline"
        self.pylab_gui_select = None
        return super().enable_matplotlib(gui)

    def init_history(self) -> None:
        """Keep no history on disk."""
        self.history_manager = _History(shell=self, parent=self)
        self.configurables.append(self.history_manager)

    @property
    def Completer(self) -> Any:  # noqa: N802 - IPython's name
        """What completes names, made when somebody looks for it: few do, and it takes half as long as all the rest."""
        if self._completer is None:
            InteractiveShell.init_completer(self)
        return self._completer

    @Completer.setter
    def Completer(self, made: Any) -> None:  # noqa: N802 - as above
        """Keep what was made."""
        self._completer = made

    def init_completer(self) -> None:
        """Put it off."""

    @property
    def configurables(self) -> list[Any]:
        """What %config knows: what completes names is there for who looks from outside."""
        if self._made:
            _ = self.Completer
        return self._configurables

    @configurables.setter
    def configurables(self, known: list[Any]) -> None:
        """Keep what is known."""
        self._configurables = known

    def init_prefilter(self) -> None:
        """Look at lines as `_Prefilter` does."""
        self.prefilter_manager = _Prefilter(shell=self, parent=self)
        self.configurables.append(self.prefilter_manager)
        self.prefilter = self.prefilter_manager.prefilter_lines

    def _tee(self, channel: str) -> AbstractContextManager[None]:
        """Keep no copy of what is printed: a cell may print more than there is memory."""
        return nullcontext()

    def ask_exit(self) -> None:
        """Leave after this cell; a new kernel takes over."""
        self.leaves = True

    def should_run_async(self, raw_cell: str, **kwargs: Any) -> bool:
        """Return whether a cell awaits something; one without those words is not compiled to find out."""
        return bool(_ASYNC.search(raw_cell)) and bool(super().should_run_async(raw_cell, **kwargs))

    def system(self, cmd: str) -> None:
        """Run a command line whose output goes where the cell's goes, as it is written."""
        output.flush()
        command = self.var_expand(cmd, depth=1)
        with subprocess.Popen(["/bin/bash", "-c", command]) as process:
            try:
                self.user_ns["_exit_code"] = process.wait()
            except KeyboardInterrupt:
                process.kill()
                raise

    def init_magics(self) -> None:
        """Make %pip raise an error where a disk was full; after other failures a cell goes on, as IPython's does."""
        super().init_magics()

        def pip(line: str) -> None:
            """Run pip for this kernel: %pip install PACKAGES."""
            magics: Any = import_module("IPython.core.magics.packaging")
            magics.PackagingMagics(self).pip(line)
            if self.user_ns.get("_exit_code") == errno.ENOSPC:
                raise OSError(errno.ENOSPC, "pip found the disk full: what it wrote says which, and what helps")

        self.register_magic_function(pip, "line", "pip")

    def enable_gui(self, gui: object = None) -> None:
        """Ignore the request: there is no screen."""

    def init_io(self) -> None:
        """Leave the streams as they are."""

    # And sys.path: `InstalledPackages` adds the user's own packages, where they can be there.
    init_virtualenv = init_io


def _read_plainly(owner: Any, names: Iterable[str]) -> None:
    """Make traits that nothing configures or watches plain attributes: each read of a trait is two calls."""
    cls: type[Any] = owner.__class__
    values = {name: getattr(owner, name) for name in names if name in owner.traits()}
    owner.__class__ = type(cls.__name__, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__, **values})


def _config() -> Any:
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.banner1 = ""
    # The environment that it speaks of is the user's own layer over its own.
    config.InteractiveShell.warn_venv = False
    return config


def make_shell() -> Any:
    """Make the shell that `get_ipython()` gives."""
    stops = bdb.Bdb.stop_here
    # A debugger that a cell starts walks through its own frames: what called them is not part of the user's program.
    bdb.Bdb.stop_here = lambda self, frame: not _runs_cells(frame) and stops(self, frame)  # type: ignore[method-assign]
    return KernelShell.instance()


def _runs_cells(frame: Any) -> bool:
    module = str(frame.f_globals.get("__name__"))
    return module.startswith(("sandmeshd.", "IPython.core."))


def end_debugger() -> None:
    """Stop a debugger that the last cell started and did not leave: it would stop in the next one."""
    trace = sys.gettrace()
    if isinstance(getattr(trace, "__self__", None), bdb.Bdb):
        sys.settrace(None)


def warm_up(shell: Any) -> None:
    """Run everything in a shell once; the first exception takes as long as ten shells."""
    # The interpreter writes to code that it has run a few times only, and what is written each fork copies.
    exercise(shell, *["1+1"] * 10, "print(end='')", "import asyncio", "1/0", "1 +")
    _ = shell.Completer
    heap.forget_lookups()
    exercise(shell, "1+1", "1+1")


def exercise(shell: Any, *cells: str) -> None:
    """Run cells whose results go nowhere, and forget them."""
    for cell in cells:
        shell.run_cell(cell, store_history=True)
    forget(shell)


def forget(shell: Any) -> None:
    """Make a shell as it was before its first cell."""
    shell.reset(new_session=True)
    shell.execution_count = 1
    shell.report = b""
    history = shell.history_manager
    for name in ("_i", "_ii", "_iii", "_i00"):
        setattr(history, name, "")
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)

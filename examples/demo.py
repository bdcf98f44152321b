"""An agent's typical work in a real sandbox: figures, a plot, a pipeline, an edit, and what is out of reach."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from rich import box as borders
from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from sandmesh import FilesystemSandbox, Output, Result, SandmeshError, ToolResult
from sandmesh.mesh import find_mesh

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "data" / "co2_mauna_loa.csv"

COMPUTE = """
import pandas as pd

co2 = pd.read_csv("co2.csv", comment="#", index_col="year")
decade = (co2.index // 10 * 10).rename("decade")
decades = co2.groupby(decade).ppm.agg(["mean", "min", "max"])
decades["a year"] = co2.ppm.diff().groupby(decade).mean()
print(decades.round(2).to_string(na_rep=""))
"""

PLOT = """
import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(9, 5), dpi=140)
ax.fill_between(co2.index, co2.ppm, 300, color="#c0392b", alpha=0.12)
ax.plot(co2.index, co2.ppm, color="#c0392b", linewidth=2.2)
ax.annotate(f"{co2.ppm.iloc[-1]:.1f} ppm in {co2.index[-1]}", (co2.index[-1], co2.ppm.iloc[-1]),
            xytext=(-12, -4), textcoords="offset points", ha="right", color="#c0392b")
ax.set(title="Carbon dioxide at Mauna Loa, annual means", ylabel="ppm", xlim=(1959, co2.index[-1] + 1), ylim=(300, 435))
ax.grid(alpha=0.3)
ax.spines[["top", "right"]].set_visible(False)
bars = ax.inset_axes((0.08, 0.58, 0.34, 0.32))
rise = decades["a year"].dropna()
bars.bar(rise.index, rise, width=7, color="#34495e")
bars.set_xticks(rise.index, [f"{decade}s" for decade in rise.index])
bars.set_title("rise a year, by decade (ppm)", fontsize=8)
bars.tick_params(labelsize=6)
plt.show()
"""

PIPELINE = """
grep -v '^[#y]' co2.csv | awk -F, '{ decade = int($1 / 10) * 10; sum[decade] += $2; count[decade]++ }
  END { for (decade in sum) printf "%d %.1f\\n", decade, sum[decade] / count[decade] }' | sort |
while read decade ppm; do
  bar=$(printf '%*s' "$(( (${ppm%.*} - 300) / 3 ))" '' | tr ' ' '#')
  printf '%ss  %s ppm  %s\\n' "$decade" "$ppm" "$bar"
  sleep 0.06
done
"""

SCRIPT = """\
rows = [line.split(",") for line in open("co2.csv") if line[0].isdigit()]
years = {int(year): float(ppm) for year, ppm in rows}
first, last = 1959, max(years)
print(f"{first}-{last}: {(years[last] - years[first]) / (last - first):.2f} ppm a year")
"""
SINCE = "first, last = 2014"

CONNECT = "import socket; socket.create_connection(('1.1.1.1', 53), timeout=2)"


class Demo:
    """Runs the steps, shows their results and measures their times."""

    def __init__(self, console: Console, folder: Path) -> None:
        """Show on `console`; save files for the user in `folder`."""
        self._console = console
        self._folder = folder
        self._address = find_mesh()
        self._timings: list[tuple[str, float]] = []

    def run(self) -> None:
        """Run all of it."""
        os.environ["DEMO_VARIABLE"] = "only the host knows this"
        host_processes = sum(path.name.isdigit() for path in Path("/proc").iterdir())
        box = FilesystemSandbox(base_url=self._address)
        with self._timed(f"start {'a sandbox' if self._address else 'the private mesh and a sandbox'}"):
            box.start()
        try:
            self._work(box, host_processes)
        finally:
            with self._timed("release the sandbox"):
                box.close()
        self._show_timings()

    def _work(self, box: FilesystemSandbox, host_processes: int) -> None:
        info = box.get_info()
        self._console.print(f"  sandbox [bold]{box.sandbox_id}[/] on {info.get('driver')}, no network, no root")
        self._figures(box)
        self._plot(box)
        self._pipeline(box)
        self._edit(box)
        self._out_of_reach(box, host_processes)
        self._calls(box)

    def _figures(self, box: FilesystemSandbox) -> None:
        self._title("Figures: a CSV goes in, pandas computes")
        with self._timed("write a CSV into the sandbox"):
            self._must(box.write_file("co2.csv", FIGURES.read_text()))
        with self._timed("import pandas, load and compute"):
            computed = self._must(box.run_ipython_cell(COMPUTE))
        self._console.print(escape(computed.stdout.rstrip()), style="cyan", highlight=False)

    def _plot(self, box: FilesystemSandbox) -> None:
        self._title("A plot comes back as an image")
        with self._timed("draw with matplotlib"):
            drawn = self._must(box.run_ipython_cell(PLOT))
        path = self._folder / "co2.png"
        self._folder.mkdir(exist_ok=True)
        path.write_bytes(drawn.images[0])
        self._console.print(f"  saved [bold]{escape(str(path))}[/] ({path.stat().st_size:,} bytes)")

    def _pipeline(self, box: FilesystemSandbox) -> None:
        self._title("A shell pipeline, its output live")
        started = time.perf_counter()
        with self._timed("run the pipeline (it sleeps between lines)"):
            for event in box.stream("run_shell_command", command=PIPELINE):
                if isinstance(event, Output):
                    at = f"[dim]{time.perf_counter() - started:5.2f} s[/]  "
                    self._console.print(at + escape(event.text.rstrip()), highlight=False)
                if isinstance(event, Result) and event.is_error:
                    raise SystemExit(f"the pipeline failed: {event}")

    def _edit(self, box: FilesystemSandbox) -> None:
        self._title("A file is edited, and the diff shown")
        self._must(box.write_file("rise.py", SCRIPT))
        before = self._must(box.run_shell_command("python rise.py"))
        with self._timed("edit a file"):
            edited = self._must(
                box.edit_file("rise.py", [{"oldText": "first, last = 1959", "newText": "first, last = 2014"}])
            )
        diff = "\n".join(line for line in edited.text.splitlines() if not line.startswith("```"))
        self._console.print(Syntax(diff, "diff", theme="ansi_dark", background_color="default"))
        after = self._must(box.run_shell_command("python rise.py"))
        self._console.print(f"  before: {before.stdout.strip()}\n  after:  {after.stdout.strip()}")

    def _out_of_reach(self, box: FilesystemSandbox, host_processes: int) -> None:
        self._title("What is out of reach")
        tried: list[tuple[str, Callable[[], ToolResult]]] = [
            ("this program's own file, by a tool", lambda: box.read_file(str(HERE / "demo.py"))),
            ("the same, by the shell", lambda: box.run_shell_command(f"cat '{HERE}/demo.py'")),
            ("a variable of the host", lambda: box.run_shell_command("echo \"DEMO_VARIABLE is '$DEMO_VARIABLE'\"")),
            (
                f"the host's {host_processes} processes",
                lambda: box.run_shell_command("echo $(ls /proc | grep -c '^[0-9]') are visible"),
            ),
            ("the first of them, to be killed", lambda: box.run_shell_command("kill -9 1 && echo and it still lives")),
            ("the system's files", lambda: box.run_shell_command("touch /usr/bin/evil")),
            ("capabilities", lambda: box.run_shell_command("grep CapEff /proc/self/status")),
            (
                "the network",
                lambda: box.run_ipython_cell(CONNECT),
            ),
        ]
        table = Table("tried", "answered", box=borders.SIMPLE, pad_edge=False)
        for what, call in tried:
            table.add_row(what, escape(last_words(call())))
        self._console.print(table)

    def _calls(self, box: FilesystemSandbox) -> None:
        seconds: list[float] = []
        for _ in range(100):
            started = time.perf_counter()
            box.run_ipython_cell("1+1")
            seconds.append(time.perf_counter() - started)
        self._timings.append(('run_ipython_cell("1+1"), median of 100', statistics.median(seconds)))

    def _show_timings(self) -> None:
        self._title("How long it took")
        table = Table("step", "milliseconds", box=borders.SIMPLE, pad_edge=False)
        table.columns[1].justify = "right"
        for what, seconds in self._timings:
            table.add_row(what, f"{seconds * 1e3:,.1f}")
        self._console.print(table)
        ends = (
            f"The mesh at {self._address} keeps running" if self._address else "The private mesh ends with this program"
        )
        self._console.print(escape(f"{ends}; nothing of the demo does."), soft_wrap=True)

    def _title(self, text: str) -> None:
        self._console.print()
        self._console.rule(f"[bold]{text}", align="left", style="dim")

    def _must(self, result: ToolResult) -> ToolResult:
        if result.is_error:
            raise SystemExit(f"this step failed in the sandbox:\n{result.text}")
        return result

    @contextmanager
    def _timed(self, what: str) -> Generator[None]:
        started = time.perf_counter()
        yield
        self._timings.append((what, time.perf_counter() - started))


def last_words(result: ToolResult) -> str:
    """Return the last line of the output, without the remark on the exit code."""
    lines = [line for line in result.text.splitlines() if line.strip() and not line.startswith("The command ended")]
    return lines[-1] if lines else "(nothing)"


def main() -> None:
    """Run the demo; what it saves is in demo-output/ below the current directory, or where the argument says.

    With --browser it is that of a browser, examples/browser.py.
    """
    if "--browser" in sys.argv:
        others = [each for each in sys.argv[1:] if each != "--browser"]
        os.execv(sys.executable, [sys.executable, str(HERE / "browser.py"), *others])  # noqa: S606 - our own program
    console = Console()
    console.rule("[bold]sandmesh", style="green")
    try:
        Demo(console, Path(sys.argv[1] if len(sys.argv) > 1 else "demo-output").absolute()).run()
    except SandmeshError as error:
        Console(stderr=True).print(f"[bold red]{error.reason}[/] {escape(str(error))}", highlight=False)
        sys.exit(1)


if __name__ == "__main__":
    main()

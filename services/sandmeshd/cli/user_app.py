"""The commands of `sandmesh`, each imported when it runs."""

from __future__ import annotations

import typer

from sandmeshd.cli.terminal.lazy_group import Entry, LazyGroup

MESH, SANDBOXES, MACHINE = "Meshes", "Sandboxes", "This machine"
CLI = "sandmeshd.cli"
RECORDS, TOOLS, RUN = f"{CLI}.sandboxes.records", f"{CLI}.sandboxes.tools", f"{CLI}.run.commands"
PORTS, SNAPSHOTS = f"{CLI}.sandboxes.ports", f"{CLI}.images.snapshots"
QUOTAS, PAUSES = f"{CLI}.tenants.quotas", f"{CLI}.sandboxes.pauses"


class UserCommands(LazyGroup):
    """The commands for people and scripts."""

    entries = (
        Entry("up", f"{CLI}.mesh.up", "Run a mesh with all its services on this machine.", MESH),
        Entry("down", f"{CLI}.mesh.up", "End this user's local mesh and delete its sandboxes.", MESH),
        Entry("console", f"{CLI}.mesh.console", "Serve pages that show the mesh, and print a link to them.", MESH),
        Entry("sweep", f"{CLI}.sandboxes.sweep", "Fix differences between records and runtimes now.", MESH),
        Entry("token", f"{CLI}.tenants.tokens", "Manage the tokens that clients authenticate with.", MESH),
        Entry("audit", f"{CLI}.tenants.audit", "Print who changed what, and who was refused.", MESH),
        Entry("quota", QUOTAS, "Manage the quotas of projects and users.", MESH),
        Entry("webhook", f"{CLI}.tenants.webhooks", "Send events of a mesh to HTTP endpoints.", MESH),
        Entry("usage", f"{CLI}.tenants.usage", "Print what projects and sandboxes had.", MESH),
        Entry("secret", f"{CLI}.tenants.secrets", "Manage secrets, which sandboxes use without having them.", MESH),
        Entry(
            "certificate",
            f"{CLI}.mesh.certificates",
            "Create a certificate for trials, its key and the authority that signed it.",
            MESH,
        ),
        Entry("run", f"{CLI}.run.run", "Run a program in a new sandbox.", SANDBOXES),
        Entry("exec", RUN, "Run a command in an existing sandbox.", SANDBOXES),
        Entry("shell", RUN, "Open a shell in a sandbox.", SANDBOXES),
        Entry(
            "agent",
            f"{CLI}.coding_agents.commands",
            "Run a coding agent in a sandbox, on a copy of a folder.",
            SANDBOXES,
            "agent_commands",
        ),
        Entry(
            "worker",
            f"{CLI}.hosted_agents.commands",
            "Serve agents that a vendor hosts, each session in a sandbox.",
            SANDBOXES,
            "worker_commands",
        ),
        Entry("ssh", f"{CLI}.ssh.commands", "Open an SSH session in a sandbox by OpenSSH's ssh.", SANDBOXES),
        Entry("ssh-config", f"{CLI}.ssh.commands", "Print a block for ~/.ssh/config.", SANDBOXES),
        Entry("python", RUN, "Run Python code in a new sandbox.", SANDBOXES),
        Entry("cp", f"{CLI}.sandboxes.files", "Copy a file or directory into a sandbox or out of it.", SANDBOXES),
        Entry("top", f"{CLI}.top.command", "Show a mesh as it changes.", SANDBOXES),
        Entry("ls", RECORDS, "List sandboxes.", SANDBOXES),
        Entry("inspect", RECORDS, "Print a sandbox's record.", SANDBOXES),
        Entry("kill", RECORDS, "Release sandboxes of any holder.", SANDBOXES),
        Entry("pause", PAUSES, "Pause sandboxes.", SANDBOXES),
        Entry("resume", PAUSES, "Resume paused sandboxes.", SANDBOXES),
        Entry("fork", f"{CLI}.sandboxes.forks", "Fork a sandbox into others.", SANDBOXES),
        Entry(
            "overlay",
            f"{CLI}.sandboxes.overlays",
            "Try changes of files in an overlay of a sandbox, and commit or discard them.",
            SANDBOXES,
            "overlay_commands",
        ),
        Entry("mark", PAUSES, "Hold the state of a Python kernel.", SANDBOXES),
        Entry("rewind", PAUSES, "Return a Python kernel to a mark.", SANDBOXES),
        Entry("logs", f"{CLI}.sandboxes.logs", "Print the log of a sandbox's agent and runtime.", SANDBOXES),
        Entry("events", f"{CLI}.sandboxes.events", "Print the events of sandboxes.", SANDBOXES),
        Entry("tools", TOOLS, "List the tools that a sandbox has now.", SANDBOXES),
        Entry("call", TOOLS, "Call a tool of a sandbox and print its text.", SANDBOXES),
        Entry("mcp-servers", TOOLS, "Manage MCP servers inside a sandbox.", SANDBOXES, "server_commands"),
        Entry("mcp", f"{CLI}.mcp", "Serve an MCP client over standard input and output.", SANDBOXES),
        Entry("expose", PORTS, "Print a URL that carries HTTP and WebSocket to a port of a sandbox.", SANDBOXES),
        Entry("desktop", PORTS, "Print the URL of a page that shows a sandbox's desktop.", SANDBOXES),
        Entry("replay", f"{CLI}.replay.command", "Write a page that shows a recording.", SANDBOXES),
        Entry("browser", PORTS, "Print the URL of a page that shows what a sandbox's browser shows.", SANDBOXES),
        Entry("mobile", PORTS, "Print the URL of a page that shows a sandbox's Android device.", SANDBOXES),
        Entry("ports", PORTS, "Manage the URLs of sandboxes' ports.", SANDBOXES, "port_commands"),
        Entry("network", f"{CLI}.sandboxes.network", "Print or change what a running sandbox may reach.", SANDBOXES),
        Entry("stats", f"{CLI}.sandboxes.stats", "Print what a sandbox uses.", SANDBOXES),
        Entry("snapshot", SNAPSHOTS, "Create, list, push and delete snapshots.", SANDBOXES, "snapshot_commands"),
        Entry("templates", f"{CLI}.sandboxes.templates", "List the templates of the mesh.", SANDBOXES),
        Entry(
            "training",
            f"{CLI}.sandboxes.training",
            "List the tasks of training environments, run episodes, and give data.",
            SANDBOXES,
            "training_commands",
        ),
        Entry(
            "image",
            f"{CLI}.images.commands",
            "Pull, list, push and remove images of sandboxes.",
            MACHINE,
            "image_commands",
        ),
        Entry("build", f"{CLI}.build", "Build a template's image or Python environment.", MACHINE),
        Entry("doctor", f"{CLI}.doctor.command", "Check this machine, its drivers and the mesh.", MACHINE),
        Entry("config", f"{CLI}.config.command", "Print the settings of a mesh on this machine.", MACHINE),
        Entry("storage", f"{CLI}.storage.command", "Copy directories to and from the storage.", MACHINE),
        Entry("version", f"{CLI}.version", "Print the version, and that of Python.", MACHINE),
    )


app = typer.Typer(
    cls=UserCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def sandmesh() -> None:
    """Isolated computers on demand. `sandmesh up` runs a mesh on this machine."""

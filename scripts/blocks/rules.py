"""What runs the blocks of code in the pages, or why nothing does."""

from __future__ import annotations

from typing import Final

from scripts.blocks.blocks import Rule, not_run, run_by

PAGE_BLOCKS: Final = "tests/mesh/calls/test_page_blocks.py"
EXAMPLES: Final = "tests/mesh/cli/test_examples.py"
AGENTS: Final = "tests/mesh/integrations/test_agent_loop.py"
INTEGRATIONS: Final = "tests/mesh/integrations/test_frameworks.py"
ELSEWHERE: Final = not_run("names a mesh, a host or a key of the reader's")
PARTS: Final = not_run("shows calls one by one, with values of the reader's")
TRAINERS: Final = not_run("is configuration of a framework; its adapter is run by tests/mesh/integrations")
ENGINE: Final = not_run("needs an engine; the same commands are run by tests/conformance/test_docker.py")
VENDOR: Final = not_run("needs an account of the vendor's")

RULES: Final = (
    Rule("docs/quickstart.md", run_by(AGENTS), "# examples/agent_loop.py"),
    Rule("(README|docs/quickstart).md", run_by(EXAMPLES), "# examples/"),
    Rule("docs/frameworks.md", run_by(AGENTS), "# examples/"),
    Rule("docs/integrations/rollouts.md", run_by("tests/mesh/integrations/test_rollouts.py")),
    Rule("docs/integrations/.*", run_by(INTEGRATIONS)),
    Rule("README.md", run_by("tests/mesh/cli/test_readme_commands.py"), "python3 -m venv"),
    Rule(
        "README.md", not_run("starts meshes that stay; tests/mesh/cli/test_up.py runs these commands"), "sandmesh up  "
    ),
    Rule(
        "README.md",
        not_run("has URLs and keys of the reader's; tests/mesh/doors runs the clients"),
        "sandmesh up -d --e2b",
    ),
    Rule("(README|docs/architecture).md", not_run("is a drawing"), language=""),
    Rule("CONTRIBUTING.md", run_by("tests/mesh/calls/test_new_tool.py"), language="python"),
    Rule("CONTRIBUTING.md", not_run("lists commands of this repository, which the continuous integration runs")),
    Rule("docs/tour.md", run_by("scripts/tour_page.py"), language="console"),
    Rule("docs/cli.md", not_run("lists forms of a command; each command has its tests in tests/mesh/cli")),
    Rule(
        "docs/operate.md",
        not_run("takes a version that is not there yet; tests/faults/test_versions.py upgrades"),
        "sandmesh down --keep",
    ),
    Rule("docs/operate.md", run_by("tests/mesh/cli/test_operate.py"), language="bash"),
    Rule("docs/operate.md", not_run("is configuration of Redis")),
    Rule("docs/builds.md", run_by("tests/mesh/images/test_described_images.py"), language="python"),
    Rule("docs/builds.md", run_by("tests/mesh/images/test_builds.py"), language="bash"),
    Rule("docs/images.md", run_by("tests/unit/images/test_registry.py"), language="bash"),
    Rule("docs/images.md", not_run("pulls from Docker Hub; tests/mesh/images does the same from its registry")),
    Rule("docs/grpc.md", run_by("tests/mesh/calls/test_any_language.py")),
    Rule("docs/webhooks.md", run_by("tests/unit/facades/webhooks/test_webhook_parts.py"), language="python"),
    Rule(
        "docs/webhooks.md",
        not_run("is what a receiver is sent; tests/unit/facades/webhooks checks its form"),
        language="json",
    ),
    Rule("docs/webhooks.md", not_run("names a receiver of the reader's")),
    Rule("docs/files.md", run_by(PAGE_BLOCKS), "box.commit_changes"),
    Rule("docs/files.md", not_run("has files of the reader's; tests/mesh/files calls each of these")),
    *(
        Rule(f"docs/{page}.md", run_by(PAGE_BLOCKS), first, "python")
        for page, first in (
            ("forks", ""),
            ("limits", ""),
            ("network", "from sandmesh"),
            ("observability", ""),
            ("ports", ""),
            ("processes", "kernel ="),
            ("secrets", ""),
            ("templates", ""),
            ("tools", "from sandmesh"),
            ("workspaces", "with BaseSandbox(volumes"),
        )
    ),
    Rule("docs/workspaces.md", not_run("has a directory of the reader's; tests/mesh/files mounts one")),
    Rule("docs/(network|processes|snapshots|tools).md", PARTS),
    Rule(
        "docs/(browser|desktop|recording|mobile).md",
        not_run("takes a browser, a desktop or a phone; tests/mesh runs these"),
        language="python",
    ),
    Rule("docs/ssh.md", run_by("tests/mesh/cli/test_ssh.py"), language="bash"),
    Rule("docs/ssh.md", not_run("is what ssh-config prints; tests/mesh/cli/test_ssh.py runs clients with it")),
    Rule("docs/(browser|recording|mobile).md", not_run("is output, or takes a browser or a phone")),
    Rule(
        "docs/(coding|hosted)-agents.md",
        not_run("takes keys of vendors; tests/mesh/integrations runs the agents with a scripted model"),
    ),
    Rule("docs/(agentbay|clouds).md", VENDOR),
    Rule("docs/(deploy|drivers|kubernetes).md", ENGINE, language=""),
    Rule("docs/drivers.md", not_run("is part of examples/driver, whose test installs it"), language="toml"),
    Rule("docs/drivers.md", not_run("is part of examples/driver, whose test installs it"), "class TinySettings"),
    Rule("docs/drivers.md", PARTS),
    Rule(
        "docs/kubernetes.md", not_run("is a template for a cluster; tests/conformance/test_kubernetes.py has its own")
    ),
    Rule("docs/training.md", TRAINERS),
    Rule("docs/templates.md", not_run("is a form of a file, or names modules of the reader's")),
    Rule("docs/(mcp|mcp-adapter).md", not_run("names servers and settings of clients; tests/mesh/mcp runs them")),
    Rule("docs/mesh.md", not_run("follows events without an end; examples/mesh_client.py is run")),
    Rule("docs/migrating.md", not_run("is the import that tests/mesh/compat runs"), language="python"),
    Rule("docs/(agentscope|e2b|jupyter|sandboxfusion|swerex).md", ELSEWHERE),
    Rule("docs/(console|security|secrets|storage|tenants).md", ELSEWHERE),
    Rule("docs/states.md", not_run("is output")),
    Rule("docs/scale.md", not_run("measures for minutes")),
    Rule("docs/threat-model.md", not_run("runs for hours")),
    Rule(
        "docs/install.md",
        not_run("changes the host's AppArmor; tests/unit/drivers/test_apparmor_profile.py has the profile"),
    ),
    Rule("docs/troubleshooting.md", run_by("tests/mesh/cli/test_troubleshooting.py"), language="bash"),
)
"""The first rule that covers a block is its fate."""

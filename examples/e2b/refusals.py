"""What a mesh does not offer E2B's clients: each call names what is missing, and none succeeds without doing it."""

from collections.abc import Callable

from e2b import Sandbox, Template

sandbox = Sandbox.create(timeout=120)


def refused(call: Callable[[], object], says: str) -> None:
    """Check that a call is refused with a text."""
    try:
        call()
    except Exception as error:  # Of which class they are is the client's own affair.
        assert says in str(error), error
    else:
        raise AssertionError(f"it was not refused: {says}")


refused(lambda: Sandbox.create("nothing-of-this-name"), "nothing-of-this-name")
refused(lambda: Sandbox.create(mcp={"duckduckgo": {}}), "mcp.duckduckgo: this mesh has no server")
refused(lambda: Sandbox.create(volume_mounts={"/data": "mine"}), "volume 'mine' not found")
refused(lambda: sandbox.update_network({"deny_out": ["10.0.0.0/8"]}), "network.denyOut: grants name what is allowed")
refused(lambda: sandbox.update_network({"dns_servers": ["1.1.1.1"]}), "dnsServers: this mesh does not offer")
refused(lambda: sandbox.commands.run("true", user="ada"), "user 'ada' cannot be used")
cloud = Template().from_aws_registry("example.org/tool:1", "key", "secret", "eu-central-1")
refused(lambda: Template.build(cloud, "cloud"), "logins of clouds' registries")
refused(
    lambda: Template.build(Template().from_base_image().apt_install("cowsay"), "cow"), "the command ended with code"
)
refused(lambda: Template.build(Template().from_base_image().copy("refusals.py", "/opt/x"), "opt"), "/home/user")
assert sandbox.kill()
print("every call answered")

"""What a mesh does not offer E2B's clients: each call names what is missing, and none succeeds without doing it."""

from collections.abc import Callable

from e2b import Sandbox, Template, Volume

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
refused(lambda: Sandbox.create(mcp={"duckduckgo": {}}), "mcp: this mesh does not offer")
refused(lambda: Sandbox.create(volume_mounts={"/data": "mine"}), "volumeMounts: this mesh does not offer")
refused(lambda: Volume.create("mine"), "POST /volumes: this mesh does not offer")
refused(lambda: sandbox.update_network({"allow_out": ["example.org"]}), "network: this mesh does not offer")
refused(lambda: sandbox.pause(mode="filesystem"), "memory: a pause keeps memory here")
refused(lambda: sandbox.files.write("note", "x", metadata={"a": "b"}), "metadata of files is not kept here")
refused(lambda: sandbox.commands.run("true", user="root"), "user 'root' cannot be used")
refused(lambda: Template.build(Template().from_python_image("3.13"), "python"), "the mesh pulls no images")
refused(
    lambda: Template.build(Template().from_base_image().apt_install("cowsay"), "cow"), "the command ended with code"
)
refused(lambda: Template.build(Template().from_base_image().copy("refusals.py", "/opt/x"), "opt"), "/home/user")
assert sandbox.kill()
print("every call answered")

"""A client of a mesh: what runs there, what happened, and how the mesh is."""

from sandmesh import BaseSandbox, Mesh

with BaseSandbox(labels={"team": "red"}) as box, Mesh() as mesh:
    for sandbox in mesh.sandboxes.list(labels={"team": "red"}, state="ready"):
        print(sandbox.sandbox_id, sandbox.template, sandbox.state, sandbox.labels)
    print([event.kind for event in mesh.events.list(box.sandbox_id)])
    print(mesh.capacity().used, "of", mesh.capacity().limit)
    print("troubles:", [trouble.detail for trouble in mesh.health().troubles])

"""A batch of sandboxes: each comes as soon as it is ready, and all of them can be ended together."""

from sandmesh import BaseSandbox, Mesh

with BaseSandbox(), Mesh() as mesh:  # a mesh of this program's own, if none runs
    for item in mesh.create_many(4, job="rollout-7", deadline=120):
        if item.sandbox is None:
            print(item.index, "failed:", item.fault, item.error)
            continue
        with item.sandbox as box:
            print(item.index, box.run_ipython_cell("6 * 7").text, f"{item.seconds:.2f} s")
    mesh.sandboxes.release_all({"job": "rollout-7"})

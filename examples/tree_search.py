"""A search over the states of a live session: learning rates of a training run, by forks and by replays."""

import sys
import time

from sandmesh import BaseSandbox, Kernel

SETUP = """
import numpy as np
draw = np.random.default_rng(1)
features, hidden = draw.normal(size=(20_000, 40)), draw.normal(size=40)
labels = features @ hidden + draw.normal(size=20_000) > 0
weights = np.zeros(40)

def train(rate):
    global weights
    for part in range(0, 16_000, 500):
        x, y = features[part:part + 500], labels[part:part + 500]
        weights = weights - rate * x.T @ (1 / (1 + np.exp(-x @ weights)) - y) / 500
    margin = (features @ weights)[16_000:] * (2 * labels[16_000:] - 1)
    print(repr(float(np.log1p(np.exp(-margin)).mean())), end="")
"""
RATES = (0.01, 0.1, 0.5, 2.0)
KEPT = 5
"""How many states of each depth are expanded."""


def by_forks(box: BaseSandbox, nodes: int) -> tuple[tuple[float, tuple[float, ...]], int]:
    """Fork each kept state once for each rate: what led to it is never run again."""
    root = box.kernels.create()
    root.run(SETUP)
    beam: list[tuple[float, tuple[float, ...], Kernel]] = [(0.0, (), root)]
    made = 0
    while made < nodes:
        found: list[tuple[float, tuple[float, ...], Kernel]] = []
        for _, path, kernel in beam:
            children = kernel.fork(len(RATES))
            if children.error is not None:
                raise children.error
            for rate, child in zip(RATES, children, strict=True):
                found.append((float(child.run(f"train({rate})").text), (*path, rate), child))
            kernel.delete()
        made += len(found)
        found.sort(key=lambda node: node[:2])
        for _, _, kernel in found[KEPT:]:
            kernel.delete()
        beam = found[:KEPT]
    for _, _, kernel in beam:
        kernel.delete()
    return beam[0][:2], made


def by_replays(box: BaseSandbox, nodes: int) -> tuple[tuple[float, tuple[float, ...]], int]:
    """Run everything that leads to a state again, in a new kernel."""
    beam: list[tuple[float, tuple[float, ...]]] = [(0.0, ())]
    made = 0
    while made < nodes:
        found: list[tuple[float, tuple[float, ...]]] = []
        for _, path in beam:
            for rate in RATES:
                kernel = box.kernels.create()
                kernel.run(SETUP)
                losses = [kernel.run(f"train({each})").text for each in (*path, rate)]
                found.append((float(losses[-1]), (*path, rate)))
                kernel.delete()
        made += len(found)
        beam = sorted(found)[:KEPT]
    return beam[0], made


def main(nodes: int) -> None:
    """Search both ways, and compare."""
    with BaseSandbox() as box:
        best: list[tuple[float, tuple[float, ...]]] = []
        for search in (by_forks, by_replays):
            began = time.perf_counter()
            (loss, rates), made = search(box, nodes)
            seconds = time.perf_counter() - began
            print(f"{search.__name__}: {made} nodes in {seconds:.1f} s, loss {loss:.6f} by the rates {rates}")
            best.append((loss, rates))
        print("the same result:", best[0] == best[1])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)

"""Scores of recorded answers in episodes of the environment `bfcl`, beside those of the package's own runner.

The table is that of docs/training.md.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sandmesh import BFCLSandbox, Output

ANSWERS: Final = Path(__file__).with_name("bfcl_answers.py")
ROW: Final = "| {} | {} | {} | {} | {} |"


def recorded(box: BFCLSandbox, each: int) -> Iterator[Mapping[str, Any]]:
    """Yield the recorded answers, which the package's own runner has scored inside of the sandbox."""
    box.fs.write("answers.py", ANSWERS.read_bytes())
    written = bytearray()
    with box.processes.start(["python", "answers.py", str(each)]) as process:
        for event in process:
            if isinstance(event, Output) and event.stream == "stdout":
                written += event.data
        ended = process.wait()
    if ended.exit_code != 0:
        raise SystemExit(f"the package's runner failed: {ended.message or ended.exit_code}")
    yield from map(json.loads, written.decode().splitlines())


def play(box: BFCLSandbox, answer: Mapping[str, Any]) -> bool:
    """Play an episode with a recorded answer and return whether it is scored as right."""
    instance = box.create_instance("bfcl", answer["task"])["info"]["instance_id"]
    stepped: dict[str, Any] = {"is_terminated": False}
    for turn in answer["turns"]:
        for step in turn:
            stepped = box.step(instance, message(step))
        if not stepped["is_terminated"]:
            stepped = box.step(instance, message([]))
    score: float = box.evaluate(instance, params={"sparse": True})
    if not stepped["is_terminated"] or stepped["reward"] != score:
        raise SystemExit(f"{answer['task']}: the reward at the end is not the score")
    box.release_instance(instance)
    return score == 1.0


def message(calls: list[Any]) -> dict[str, str]:
    """Return an assistant's message with calls."""
    lines = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in calls]
    content = "\n".join(f"<tool_call>\n{line}\n</tool_call>" for line in lines)
    return {"role": "assistant", "content": content or "Done."}


def compare(box: BFCLSandbox, each: int) -> Mapping[str, Counter[str]]:
    """Return for each category how many answers there are, how many each side accepts, and how many differ."""
    counts: dict[str, Counter[str]] = {}
    for answer in recorded(box, each):
        ours = play(box, answer)
        count = counts.setdefault(answer["category"], Counter())
        count.update({"answers": 1, "package": answer["valid"], "episodes": ours, "differ": ours != answer["valid"]})
    return counts


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser("python -m benchmarks.bfcl", description=__doc__)
    parser.add_argument("each", nargs="?", type=int, default=1, help="take every so many-th task of each category (1)")
    each = parser.parse_args().each
    with BFCLSandbox() as box:
        counts = compare(box, each)
    print("| category | answers | right by the package | right by episodes | differ |\n| --- | --- | --- | --- | --- |")
    total: Counter[str] = Counter()
    for count in counts.values():
        total.update(count)
    for category, count in (*counts.items(), ("all", total)):
        print(ROW.format(category, count["answers"], count["package"], count["episodes"], count["differ"]))


if __name__ == "__main__":
    main()

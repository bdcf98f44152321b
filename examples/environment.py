from collections.abc import Mapping
from typing import Any

from sandmesh import Environment, EnvironmentRefusal, SandboxRegistry, TrainingSandbox

Params = Mapping[str, Any]


class Guess(Environment):
    @classmethod
    def list_tasks(cls, split: str, params: Params) -> list[str]:
        return ["3", "7"] if split == "train" else ["5"]

    def __init__(self, task_id: str, params: Params) -> None:
        self.number, self.found = int(task_id), False

    def reset(self) -> Params:
        return {"state": [{"role": "user", "content": "Guess my number."}]}

    def step(self, action: Any, params: Params) -> Params:
        if not str(action.get("content")).isdecimal():
            raise EnvironmentRefusal("An action is {'role': 'assistant', 'content': a number}.")
        self.found = int(action["content"]) == self.number
        said = "Yes." if self.found else "No."
        state = [{"role": "user", "content": said}]
        return {"state": state, "reward": float(self.found), "is_terminated": self.found}

    def evaluate(self, messages: Any, params: Params) -> float:
        return float(self.found)


@SandboxRegistry.register("runtime-sandbox-training", sandbox_type="guessing", environments={"guess": Guess})
class GuessingSandbox(TrainingSandbox):
    pass


if __name__ == "__main__":
    with GuessingSandbox() as box:
        for task_id in box.get_task_ids("guess", split="train"):
            first = box.create_instance("guess", task_id)
            instance_id = first["info"]["instance_id"]
            number, over = -1, False
            while not over:
                number += 1
                over = box.step(instance_id, {"role": "assistant", "content": str(number)})["is_terminated"]
            print(task_id, number, box.evaluate(instance_id))
            box.release_instance(instance_id)

"""An environment of SkyRL-Gym whose model writes Python: an episode has its sandbox, and tests give the reward."""

import re

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from sandmesh import BaseSandbox, SandmeshError

CODE = re.compile(r"<code>(.*?)</code>", re.DOTALL)


class SandboxEnv(BaseTextEnv):
    """Runs each action's code in the episode's sandbox; the reward is 1 once the tests of `extras` pass."""

    def __init__(self, extras: dict[str, str], max_turns: int = 4) -> None:
        super().__init__()
        self.max_turns = max_turns
        self.tests = extras["tests"]
        self.box = BaseSandbox().start()

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Run the code, then the tests; `metadata` tells a failure of the mesh from one of the model."""
        self.turns += 1
        found = CODE.search(action)
        fault, solved = None, False
        try:
            shown = self.box.run_ipython_cell(found[1], timeout=10).text if found else "no <code> in the answer"
            solved = found is not None and not self.box.run_ipython_cell(self.tests, timeout=10).is_error
        except SandmeshError as error:
            shown, fault = str(error), error.fault
        done = solved or fault == "infra" or self.turns >= self.max_turns
        if done:
            self.close()
        observations = [] if done else [{"role": "user", "content": shown}]
        return {"observations": observations, "reward": float(solved), "done": done, "metadata": {"fault": fault}}

    def close(self) -> None:
        """End the sandbox; a second call changes nothing."""
        self.box.close()


skyrl_gym.register(id="sandbox", entry_point=SandboxEnv)
tests = "assert add(2, 3) == 5"
env = skyrl_gym.make("sandbox", extras={"tests": tests})
try:
    prompt, _ = env.init([{"role": "user", "content": "Define add(a, b)."}])
    wrong = env.step("<code>def add(a, b): return a - b\nprint(add(2, 3))</code>")
    assert (wrong["reward"], wrong["done"], wrong["observations"][0]["content"].strip()) == (0.0, False, "-1"), wrong
    right = env.step("<code>def add(a, b): return a + b</code>")
    assert (right["reward"], right["done"]) == (1.0, True), right
finally:
    env.close()
print("the reward is", right["reward"])

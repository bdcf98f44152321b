"""Training environments by AgentScope Runtime's own package: only an address and a token are a mesh's."""

import os

from agentscope_runtime.sandbox import TrainingSandbox
from agentscope_runtime.sandbox.box.training_box import BFCLSandbox
from agentscope_runtime.sandbox.enums import SandboxType

mesh = {"base_url": os.environ["BASE_URL"], "bearer_token": os.environ["BEARER_TOKEN"]}

for made in (BFCLSandbox(**mesh), TrainingSandbox(**mesh, box_type=SandboxType.BFCL)):
    with made as box:
        tasks = box.get_env_profile(env_type="bfcl", split="train")
        assert len(tasks) > 1, tasks
        assert box.get_task_ids(env_type="bfcl", split="train") == tasks
        first = box.create_instance("bfcl", tasks[1])
        instance = first["info"]["instance_id"]
        assert first["state"][0]["role"], first
        answer = box.step(instance, {"role": "assistant", "content": "I do nothing."})
        assert {"state", "reward", "is_terminated", "info"} <= set(answer), answer
        score = box.evaluate(instance)
        assert score["accuracy"] == 0.0, score
        assert box.release_instance(instance) is True
        assert str(box.step("nothing")).startswith("Error: HTTP 400"), box.step("nothing")
print("every call answered")

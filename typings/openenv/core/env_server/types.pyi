from typing import Any

from pydantic import BaseModel

class Action(BaseModel):
    metadata: dict[str, Any] = {}

class Observation(BaseModel):
    done: bool = False
    reward: bool | int | float | None = None
    metadata: dict[str, Any] = {}

class State(BaseModel):
    episode_id: str | None = None
    step_count: int = 0

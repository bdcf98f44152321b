from typing import Any

from pydantic import BaseModel

class OpenAIFunctionToolSchema(BaseModel):
    type: str

class ToolResponse(BaseModel):
    text: str | None = None
    image: list[Any] | None = None
    video: list[Any] | None = None

from abc import ABC, abstractmethod
from typing import Any

class ContainerProvider(ABC):
    @abstractmethod
    def start_container(
        self, image: str, port: int | None = None, env_vars: dict[str, str] | None = None, **kwargs: Any
    ) -> str: ...
    @abstractmethod
    def stop_container(self) -> None: ...
    @abstractmethod
    def wait_for_ready(self, base_url: str, timeout_s: float = 30.0) -> None: ...

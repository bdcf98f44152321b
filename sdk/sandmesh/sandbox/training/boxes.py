"""Sandboxes with training environments, and their sync twins."""

from __future__ import annotations

from typing import ClassVar

from sandmesh._client.sync import blocking
from sandmesh.sandbox.boxes import SandboxAsync
from sandmesh.sandbox.sync import Sandbox
from sandmesh.sandbox.training.methods import TrainingMethodsAsync


class TrainingSandboxAsync(TrainingMethodsAsync):
    """A sandbox with training environments: those of Gymnasium, and those of types derived from it."""

    default_type: ClassVar[str] = "training"


class BFCLSandboxAsync(TrainingSandboxAsync):
    """A sandbox with the Berkeley Function Calling Leaderboard as the environment `bfcl`."""

    default_type: ClassVar[str] = "bfcl"


class APPWorldSandboxAsync(TrainingSandboxAsync):
    """A sandbox with AppWorld as the environment `appworld`, on a node that has its data."""

    default_type: ClassVar[str] = "appworld"


class TrainingSandbox(Sandbox):
    """A sandbox with training environments: those of Gymnasium, and those of types derived from it."""

    twin_class: ClassVar[type[SandboxAsync]] = TrainingSandboxAsync

    get_task_ids = blocking(TrainingMethodsAsync.get_task_ids)
    get_env_profile = blocking(TrainingMethodsAsync.get_env_profile)
    create_instance = blocking(TrainingMethodsAsync.create_instance)
    step = blocking(TrainingMethodsAsync.step)
    evaluate = blocking(TrainingMethodsAsync.evaluate)
    release_instance = blocking(TrainingMethodsAsync.release_instance)
    record_episodes = blocking(TrainingMethodsAsync.record_episodes)
    replay_episodes = blocking(TrainingMethodsAsync.replay_episodes)


class BFCLSandbox(TrainingSandbox):
    """A sandbox with the Berkeley Function Calling Leaderboard as the environment `bfcl`."""

    twin_class: ClassVar[type[SandboxAsync]] = BFCLSandboxAsync


class APPWorldSandbox(TrainingSandbox):
    """A sandbox with AppWorld as the environment `appworld`, on a node that has its data."""

    twin_class: ClassVar[type[SandboxAsync]] = APPWorldSandboxAsync

"""What `sandmesh.integrations.swe_rex` uses of the package."""

import logging
from abc import ABC

class AbstractDeployment(ABC):
    logger: logging.Logger

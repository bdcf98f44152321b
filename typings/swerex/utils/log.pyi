"""What `sandmesh.integrations.swe_rex` uses of the package."""

import logging

def get_logger(name: str) -> logging.Logger: ...

from enum import Enum

class ResourceMode(str, Enum):
    LIMIT = "limit"

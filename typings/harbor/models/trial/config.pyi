from enum import StrEnum

class ResourceMode(StrEnum):
    LIMIT = "limit"

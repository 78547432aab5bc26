NAMES: str

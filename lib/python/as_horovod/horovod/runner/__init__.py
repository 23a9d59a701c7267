from berth import run  # noqa: F401

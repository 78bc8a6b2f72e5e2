"""Checks of weather.yaml that the file cannot say by itself."""


def is_short(result):
    words = len(result["answer"].split())
    return True if words <= 60 else f"it has {words} words"

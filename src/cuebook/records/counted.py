"""A count with its noun, as texts for people say it."""


def counted(count: float, one: str, more: str = "") -> str:
    """Say how many of something there are: "1 post", "2,000 posts", "1.5 posts"; `more` where no s is the plural."""
    said = f"{count:,.1f}".removesuffix(".0")
    return f"{said} {one if said == '1' else more or f'{one}s'}"

"""The arguments that several prompt operations share."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from cuebook.operations import Argument

#: The highest version number.
HIGHEST = 2**31

Slug = Annotated[str, Meta(description="Prompt ID."), Argument(metavar="PROMPT")]
Reference = Annotated[
    str,
    Meta(description="Prompt ID; append @BRANCH, @LABEL, :N or @BRANCH:N for a version."),
    Argument(metavar="PROMPT"),
]
BranchName = Annotated[str | None, Meta(description="Branch. Default: `main`.")]
Number = Annotated[int | None, Meta(ge=1, le=HIGHEST, description="Version. Default: the active one.")]
TargetBranch = Annotated[str | None, Meta(min_length=1, description="Branch. Default: `main`.")]
LabelName = Annotated[str | None, Meta(description="Label of the version, instead of branch and version.")]
#: The signals of a round, with their strengths.
Signals = Annotated[
    Mapping[str, Annotated[float, Meta(ge=0, le=1)] | bool] | None,
    Meta(description="Signals of the round."),
    Argument(flag="signal", metavar="NAME[=0..1]"),
]
Propensity = Annotated[float, Meta(gt=0, le=1, description="Probability with which it was selected.")]


class ForkOrigin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version by branch and number, or by label. Default: the active version of `main`."""

    branch: Annotated[str, Meta(min_length=1)] | None = None
    version: Annotated[int, Meta(ge=1, le=HIGHEST)] | None = None
    label: Annotated[str, Meta(min_length=1)] | None = None


Resolve = Annotated[bool, Meta(description="Include inherited sections and parameters.")]
Prefix = Annotated[str, Meta(description="Use only prompts whose ID has this prefix."), Argument(metavar="P")]
Project = Annotated[
    str | None,
    Meta(description="Prefer the own prompt of this project; empty: none. Default: the setting."),
    Argument(metavar="NAME"),
]
Force = Annotated[bool, Meta(description="Store it even if it contains a secret.")]

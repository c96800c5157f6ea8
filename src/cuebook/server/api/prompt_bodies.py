"""Define the request types under `/api/prompts`, which validate and document them (OpenAPI)."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, field

from cuebook.records.prompt import Engine, Missing, TaskOutcome
from cuebook.server.api.types import In, Text

#: The highest version number.
HIGHEST = 2**31

Number = Annotated[int, Meta(ge=1, le=HIGHEST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
User = Annotated[str | None, Meta(description="The acting user")]
Label = Annotated[Text | None, Meta(description="Label of the version, instead of branch and version")]


class SaveBody(In, frozen=True, kw_only=True):
    """A version to create. Omitted fields keep their values; `inherits: null` removes the parent.

    `base` is the version it was edited from, 0 for none: 409 if the head has moved.
    """

    slug: str
    sections: dict[str, str]
    branch: Text | None = None
    type: Text | None = None
    override_sections: dict[str, str] | None = None
    inherits: str | UnsetType | None = UNSET
    metadata: dict[str, Any] | None = None
    params: Any = None
    engine: Engine | None = None
    semver: str | None = None
    base: Annotated[int, Meta(ge=0, le=HIGHEST)] | None = None
    tags: list[str] | None = None
    author: str | None = None
    description: str | None = None
    sync: bool | None = None
    user_id: User = None


class Origin(In, frozen=True, kw_only=True):
    """A version by branch and number, or by label. Default: the active version of `main`."""

    branch: Text | None = None
    version: Number | None = None
    label: Label = None


class ForkBody(In, frozen=True, kw_only=True):
    """A branch to create, and the version to copy."""

    name: str
    origin: Origin | None = field(default=None, name="from")
    user_id: User = None


class ObserveBody(In, frozen=True, kw_only=True):
    """Feedback of a round on a version. Default: the active version."""

    sentiment: Share
    correction_count: Annotated[int, Meta(ge=0, le=HIGHEST)] = 0
    task_outcome: TaskOutcome | None = None
    missing: Missing | None = None
    branch: Text | None = None
    version: Number | None = None
    label: Label = None
    conversation_id: Text | None = None
    signals: dict[str, Share | bool] = field(default_factory=dict)
    propensity: Annotated[float, Meta(gt=0, le=1)] = 1.0
    user_id: User = None


class MergeBody(In, frozen=True, kw_only=True):
    """A branch to merge, and its target. Default: `main`. `by` is the author. Default: the caller."""

    branch: Text
    into: Text | None = None
    by: str | None = None
    user_id: User = None


class MigrateBody(In, frozen=True, kw_only=True):
    """The content of a migration file: an array of versions, or `{"prompts", "versions", "inheritance"}`."""

    document: Any
    dry_run: bool = False
    user_id: User = None

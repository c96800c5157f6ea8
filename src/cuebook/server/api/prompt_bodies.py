"""What comes in under `/api/prompts`, as types: it is read, refused and documented by these."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType, field

from cuebook.records.prompt import Engine, Strategy, TaskOutcome
from cuebook.server.api.types import In, Text

#: No version has a higher number.
HIGHEST = 2**31

Number = Annotated[int, Meta(ge=1, le=HIGHEST)]
Share = Annotated[float, Meta(ge=0, le=1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
User = Annotated[str | None, Meta(description="Who asks")]
Label = Annotated[Text | None, Meta(description="The version it points at, in the place of branch and version")]


class SaveBody(In, frozen=True, kw_only=True):
    """A version to write. What is left out stays what it was; `inherits: null` removes the parent.

    `base` is the version its writer saw, 0 for none: 409 where the head has moved on.
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
    """A version by its place or its label: the active one of `main` unless named."""

    branch: Text | None = None
    version: Number | None = None
    label: Label = None


class ForkBody(In, frozen=True, kw_only=True):
    """A branch to begin, and with which version."""

    name: str
    origin: Origin | None = field(default=None, name="from")
    user_id: User = None


class RenderBody(In, frozen=True, kw_only=True):
    """Values of the declared parameters, with or without `$`. `log` puts the render into the audit.

    `project` says whose own prompt stands for it, "" nobody's: the setting's unless named.
    """

    params: dict[str, Any] = field(default_factory=dict)
    branch: Text | None = None
    version: Number | None = None
    label: Label = None
    project: str | None = None
    log: bool = False
    user_id: User = None


class SelectBody(In, frozen=True, kw_only=True):
    """The signals of the moment, and how to choose. The same seed chooses the same."""

    signals: dict[str, float | bool] = field(default_factory=dict)
    strategy: Strategy | None = None
    epsilon: Share | None = None
    seed: Seed | None = None


class ObserveBody(In, frozen=True, kw_only=True):
    """What a round says about the version that spoke, the active one unless named."""

    sentiment: Share
    correction_count: Annotated[int, Meta(ge=0, le=HIGHEST)] = 0
    task_outcome: TaskOutcome | None = None
    branch: Text | None = None
    version: Number | None = None
    label: Label = None
    conversation_id: Text | None = None
    signals: dict[str, Share | bool] = field(default_factory=dict)
    propensity: Annotated[float, Meta(gt=0, le=1)] = 1.0
    user_id: User = None


class RollbackBody(In, frozen=True, kw_only=True):
    """Why, and to which version: the one before the active one unless named."""

    reason: Text
    branch: Text | None = None
    to: Number | None = None
    user_id: User = None


class MergeBody(In, frozen=True, kw_only=True):
    """A branch to merge, and the one it goes into: `main` unless named. `by` is who does it, who asks unless named."""

    branch: Text
    into: Text | None = None
    by: str | None = None
    user_id: User = None


class ClearBody(In, frozen=True, kw_only=True):
    """A version that was rolled back and is to be explored again, and why."""

    version: Number
    branch: Text | None = None
    reason: str = ""
    user_id: User = None


class LabelBody(In, frozen=True, kw_only=True):
    """A label, and where it is to point: at the active version of `main` unless named, or where another points."""

    name: str
    branch: Text | None = None
    version: Number | None = None
    label: Label = None
    user_id: User = None


class MigrateBody(In, frozen=True, kw_only=True):
    """The content of a migration file: an array of versions, or `{"prompts", "versions", "inheritance"}`."""

    document: Any
    dry_run: bool = False
    user_id: User = None

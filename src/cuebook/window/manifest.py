"""Store a window as a manifest of seq ranges and digests, in O(changes), and restore it for rendering (N2)."""

from collections.abc import Collection, Mapping, Sequence
from itertools import count, groupby
from operator import attrgetter, sub

import msgspec

from cuebook.errors import NotFound
from cuebook.records.conversation import PathPost, messages_digest, text_digest
from cuebook.records.erasure import GONE
from cuebook.records.turn import (
    CLIENT,
    Block,
    Cut,
    Dropped,
    Form,
    Manifest,
    ManifestCopy,
    ManifestRange,
    ManifestText,
    Window,
)
from cuebook.window.partition import Partition
from cuebook.window.post_forms import PostInForm, cut_again, whole
from cuebook.window.window import RENDERER, Sheet, client_system

_FORM, _TOKENS = attrgetter("form"), attrgetter("tokens")


def remember(
    window: Window,
    sheet: Sheet,
    *,
    summary_version: int = 0,
    tools: str = "",
    copies: Collection[int] = (),
    listed: bool = False,
) -> tuple[Manifest, dict[str, str]]:
    """Return the manifest of a rendered window, and the derived texts that it references, by digest (hex).

    `copies` are posts whose messages are stored with it.
    """
    texts: dict[str, str] = {}

    def keep(text: str) -> str:
        digest = text_digest(text)
        texts[digest] = text
        return digest

    def stored_text(text: Block) -> ManifestText:
        digest = keep(text.message.decode() or text.text)
        return ManifestText(text.kind, text.source, text.role, text.tokens, digest)

    manifest = Manifest(
        renderer=RENDERER,
        budget=window.budget,
        tokens=window.tokens,
        front=tuple(map(stored_text, (*sheet.front, *sheet.client, *([sheet.summary] if sheet.summary else [])))),
        path=tuple(_ranges(sheet.partition.kept)),
        volatile=tuple(map(stored_text, sheet.volatile)),
        query=sheet.query,
        fence=sheet.fence,
        dropped=window.dropped,
        anchors=window.anchors,
        digest=messages_digest(window.raw_messages),
        stable_prefix_ratio=window.stable_prefix_ratio,
        cut={post_in_form.post.seq: post_in_form.cut for post_in_form in sheet.partition.kept if post_in_form.cut},
        copies={
            each.post.seq: ManifestCopy(each.post.tokens, keep(whole(each.post, sheet.owner).decode()))
            for each in sheet.partition.kept
            if each.post.seq in copies and each.form == "full"
        },
        listed=listed,
        tools_digest=keep(tools) if tools else "",
        tools_tokens=window.tools_tokens,
        summary_version=summary_version,
    )
    return manifest, texts


def _ranges(post_in_forms: Sequence[PostInForm]) -> list[ManifestRange]:
    """Group consecutive seqs of one form into ranges."""
    seqs = [post_in_form.post.seq for post_in_form in post_in_forms]
    runs = zip(map(sub, seqs, count()), map(_FORM, post_in_forms), strict=False)  # seq minus index: constant in a run
    ranges: list[ManifestRange] = []
    start = 0
    for (_, form), run in groupby(runs):
        end = start + len(list(run))
        ranges.append(ManifestRange(seqs[start], seqs[end - 1], form, sum(map(_TOKENS, post_in_forms[start:end]))))
        start = end
    return ranges


def dropped_ranges(posts: Sequence[PathPost], reason: str) -> list[Dropped]:
    """Return omitted posts as ranges of consecutive seqs, oldest first."""
    runs = [[post for _, post in run] for _, run in groupby(enumerate(posts), key=lambda each: each[1].seq - each[0])]
    return [
        Dropped(
            kind="post",
            reason=reason,
            tokens=sum(map(_TOKENS, run)),
            count=len(run),
            first=run[0].seq,
            last=run[-1].seq,
        )
        for run in runs
    ]


def anchored(manifest: Manifest) -> frozenset[int]:
    """Return the posts (seqs) after which a window had its last anchors, which the provider may still cache."""
    systems = next((each.after + 1 for each in manifest.anchors if each.name in ("system", "summary")), 0)
    places = {each.after - systems for each in manifest.anchors if each.name in ("last", "step")}
    results: set[int] = set()
    passed = 0
    for each in manifest.path:
        many = each.last - each.first + 1
        results.update(each.first + place - passed for place in places if passed <= place < passed + many)
        passed += many
    return frozenset(results)


def digests_of(manifest: Manifest) -> list[str]:
    """Return the digests of texts that a manifest needs."""
    texts = [text.digest for text in (*manifest.front, *manifest.volatile)]
    texts += [copy.digest for copy in manifest.copies.values()]
    return texts + ([manifest.tools_digest] if manifest.tools_digest else [])


def ranges_of(manifest: Manifest) -> list[tuple[int, int]]:
    """Return the posts that a manifest needs."""
    return [(each.first, each.last) for each in manifest.path]


def restore(manifest: Manifest, posts: Sequence[PathPost], texts: Mapping[str, str], *, user: str | None) -> Sheet:
    """Return the sheet of a recorded window. `user` is the conversation's owner.

    Raises NotFound if a post or a text of it was erased.
    """
    by_seq = {post.seq: post for post in posts}
    post_in_forms: list[PostInForm] = []
    for each in manifest.path:
        for seq in range(each.first, each.last + 1):
            if seq not in by_seq or by_seq[seq].state == GONE:
                raise NotFound(f"A post of this window was erased: {seq}.")
            post = by_seq[seq]
            if seq in manifest.copies:
                copy = manifest.copies[seq]
                wire = _known(texts, copy.digest).encode()
                post = msgspec.structs.replace(post, wire=wire, tokens=copy.tokens, state="complete")
            post_in_forms.append(_placed(post, each.form, manifest.cut.get(seq)))
    front, client, summary = _restore_front(manifest, texts)
    return Sheet(
        front=front,
        client=client,
        summary=summary,
        partition=Partition(
            kept=tuple(post_in_forms), dropped=(), tokens=sum(post_in_form.tokens for post_in_form in post_in_forms)
        ),
        volatile=tuple(_text(text, texts) for text in manifest.volatile),
        fence=manifest.fence,
        query=manifest.query,
        owner=user,
    )


def _placed(post: PathPost, form: Form, cut: Cut | None) -> PostInForm:
    if cut is not None:
        return cut_again(post, cut)
    return PostInForm(post, form, post.small_tokens if form == "compressed" else post.tokens)


def _restore_front(
    manifest: Manifest, texts: Mapping[str, str]
) -> tuple[tuple[Block, ...], tuple[Block, ...], Block | None]:
    front: list[Block] = []
    client: list[Block] = []
    summary: Block | None = None
    for each in manifest.front:
        if each.source == CLIENT:
            system = client_system(_known(texts, each.digest).encode())
            client.append(msgspec.structs.replace(system, tokens=each.tokens))
        elif each.kind == "summary":
            summary = _text(each, texts)
        else:
            front.append(_text(each, texts))
    return tuple(front), tuple(client), summary


def _text(each: ManifestText, texts: Mapping[str, str]) -> Block:
    text = _known(texts, each.digest)
    return Block(kind=each.kind, source=each.source, role=each.role, tokens=each.tokens, text=text)


def _known(texts: Mapping[str, str], digest: str) -> str:
    if digest not in texts:
        raise NotFound(f"A text of this window was erased: digest {digest}.")
    return texts[digest]

"""Tests of the window manifest: it renders the same bytes again and reports erased content."""

import json
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given

from cuebook.errors import NotFound
from cuebook.records.conversation import messages_digest
from cuebook.records.turn import Manifest
from cuebook.window.manifest import digests_of, dropped_ranges, ranges_of, remember, restore
from cuebook.window.window import render

sys.path.insert(0, str(Path(__file__).parent))
from test_window import sheets


def render_again(kept, posts, texts, owner="ann"):
    manifest = msgspec.json.decode(msgspec.json.encode(kept), type=Manifest)
    sheet = restore(manifest, posts, texts, user=owner)
    return render(sheet, manifest.dropped, budget=manifest.budget, tools_tokens=manifest.tools_tokens)


@given(sheets())
def test_a_manifest_renders_the_same_window_again(sheet):
    window = render(sheet, dropped_ranges(sheet.partition.dropped, "too old"), budget=9999, tools_tokens=11)
    manifest, texts = remember(window, sheet, summary_version=3, tools="[{}]")
    posts = [placed.post for placed in sheet.partition.kept]
    shown = render_again(manifest, posts, texts)
    assert (shown.raw_messages, shown.tokens, shown.dropped) == (window.raw_messages, window.tokens, window.dropped)
    assert shown.blocks == window.blocks
    assert messages_digest(shown.raw_messages) == manifest.digest


@given(sheets())
def test_erased_content_is_reported(sheet):
    window = render(sheet, (), budget=9999, tools_tokens=0)
    manifest, texts = remember(window, sheet)
    posts = [placed.post for placed in sheet.partition.kept]
    with pytest.raises(NotFound, match="post"):
        render_again(manifest, posts[:-1], texts)
    needed = digests_of(manifest)
    assert set(needed) == set(texts)
    for digest in needed[:1]:
        with pytest.raises(NotFound, match="text"):
            render_again(manifest, posts, {k: v for k, v in texts.items() if k != digest})


@given(sheets())
def test_ranges_name_exactly_the_kept_posts(sheet):
    window = render(sheet, (), budget=9999, tools_tokens=0)
    ranges = ranges_of(remember(window, sheet)[0])
    named = [seq for first, last in ranges for seq in range(first, last + 1)]
    assert named == [placed.post.seq for placed in sheet.partition.kept]


@given(sheets())
def test_omitted_posts_are_in_ranges_exactly_once(sheet):
    dropped = dropped_ranges(sheet.partition.dropped, "too old")
    named = [seq for each in dropped for seq in range(each.first, each.last + 1)]
    assert named == [post.seq for post in sheet.partition.dropped]
    assert sum(each.tokens for each in dropped) == sum(post.tokens for post in sheet.partition.dropped)
    assert sum(each.count for each in dropped) == len(named)


@given(sheets())
def test_a_manifest_is_small_compared_to_its_window(sheet):
    window = render(sheet, (), budget=9999, tools_tokens=0)
    manifest = remember(window, sheet)[0]
    size = len(msgspec.json.encode(manifest))
    assert size < 900 + 160 * (len(manifest.front) + len(manifest.volatile) + len(manifest.path) + len(manifest.cut))
    assert all(json.loads(message) for message in window.raw_messages)

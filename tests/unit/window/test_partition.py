"""Tests of the window partition: which posts are full, compressed or left out, and that cut points are stable."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuebook.config import BudgetConfig
from cuebook.records.conversation import Part, PathPost
from cuebook.window.partition import STEP_SHARE, least, partition, reach
from cuebook.window.post_forms import calls_of, least_of

LIMITS = BudgetConfig(window_posts=6)


def path_of(*said, unread=0):
    """Build posts in order from (role, tokens, small or None, calls made, calls answered)."""
    posts, total, round_ = [], unread, 0
    for number, (role, tokens, small, made, answered) in enumerate(said, 1):
        parts = tuple(Part("function", "{}", {"callId": each}) for each in made)
        parts += tuple(Part("execution_result", "", {"callId": each}) for each in answered)
        total += tokens
        round_ = number if role == "user" else round_
        posts.append(
            PathPost(
                number, f"p{number}", round_, role, role, "x" * tokens, tokens, "s" if small else None,
                small or tokens, total, 0.0, msgspec.json.encode(parts) if parts else None,
            )
        )  # fmt: skip
    return posts


@st.composite
def paths(draw, most=40):
    said = []
    for number in range(draw(st.integers(1, most))):
        tokens = draw(st.one_of(st.integers(5, 60), st.integers(5, 60), st.integers(60, 900)))
        small = draw(st.none() | st.integers(5, 30))
        small = small if small is not None and small < tokens else None
        kind = draw(st.sampled_from(["user", "assistant", "user", "assistant", "system", "tools"]))
        if kind != "tools":
            said.append((kind, tokens, small, (), ()))
            continue
        ids = [f"c{number}.{n}" for n in range(draw(st.integers(1, 3)))]
        said.append(("assistant", tokens, None, ids, ()))
        said += [("tool", draw(st.integers(5, 400)), None, (), (each,)) for each in ids]
    return path_of(*said)


def check(path, room, query):
    parted = partition(path, room, LIMITS, query=query)
    kept = {placed.post.seq for placed in parted.kept}
    dropped = {post.seq for post in parted.dropped}
    assert sorted([*(p.post.seq for p in parted.kept), *(p.seq for p in parted.dropped)]) == [p.seq for p in path]
    assert not kept & dropped
    assert [p.post.seq for p in parted.kept] == sorted(kept)
    assert parted.tokens == sum(placed.tokens for placed in parted.kept) <= room
    suffix = [post.seq for post in path if post.seq > max(dropped, default=0)]
    assert kept - set(suffix) <= {query}, "the kept posts are a suffix, except for the query"
    assert query in kept or not query
    assert path[-1].seq in kept
    for placed in parted.kept:
        if placed.form == "compressed":
            assert placed.tokens == placed.post.small_tokens
        elif placed.form == "full":
            assert placed.tokens == placed.post.tokens
        else:
            assert least_of(placed.post) <= placed.tokens < placed.post.tokens
            assert not any(part in (placed.post.parts or b"") for part in (b'"function"', b'"image_url"'))
    return parted


def parted_calls(path, kept):
    """Return calls in the window that lack their stored result, and results without their call."""
    made, answered = {}, {}
    for post in path:
        if calls := calls_of(post):
            made.update(dict.fromkeys(calls[0], post.seq))
            answered.update(dict.fromkeys(calls[1], post.seq))
    return [call for call in made.keys() & answered.keys() if (made[call] in kept) != (answered[call] in kept)]


@given(paths(), st.integers(0, 4000), st.data())
def test_every_rule_holds(path, extra, data):
    users = [post.seq for post in path if post.role == "user"]
    query = data.draw(st.sampled_from([0, *users]))
    room = least(path, query)[1] + extra
    parted = check(path, room, query)
    assert parted_calls(path, {placed.post.seq for placed in parted.kept}) == []


@given(paths())
def test_a_path_that_fits_is_kept_whole(path):
    room = 10 * sum(post.tokens for post in path)
    parted = check(path, room, 0)
    assert not parted.dropped
    assert all(placed.form in ("full", "cut") for placed in parted.kept)


@given(st.lists(st.integers(10, 40), min_size=120, max_size=200), st.integers(600, 1200))
@pytest.mark.slow
def test_cut_points_are_stable_within_a_step(sizes, room):
    """Check that each cut point moves at most once per added step, and never back."""
    said = [("user" if n % 2 else "assistant", size, max(5, size // 5), (), ()) for n, size in enumerate(sizes)]
    step = int(room * STEP_SHARE)
    moves, added, before = [], 0, None
    for count in range(2, len(said), 2):
        parted = check(path_of(*said[:count]), room, count)
        first = parted.kept[0].post.seq
        full = next(placed.post.seq for placed in parted.kept if placed.form == "full")
        added += sizes[count - 2] + sizes[count - 1]
        if before is not None and (first, full) != before:
            assert first >= before[0]
            assert full >= before[1]
            moves.append(added)
        before = (first, full)
    if len(moves) > 1:
        assert (moves[-1] - moves[0]) / (len(moves) - 1) >= 0.6 * step, "the cut point moves per step, not per turn"
    assert moves, "such a path does not fit"


@given(st.lists(st.integers(10, 40), min_size=60, max_size=160), st.integers(600, 1200), st.integers(2, 40))
def test_with_a_stable_cut_point_later_posts_are_stable(sizes, room, more):
    said = [("user" if n % 2 else "assistant", size, max(5, size // 5), (), ()) for n, size in enumerate(sizes)]
    longer = path_of(*said)
    shorter = longer[: max(1, len(longer) - more)]
    one, two = partition(shorter, room, LIMITS), partition(longer, room, LIMITS)

    def forms(parted):
        return [(placed.post.seq, placed.form, placed.tokens) for placed in parted.kept]

    full_one = next(placed.post.seq for placed in one.kept if placed.form == "full")
    full_two = next(placed.post.seq for placed in two.kept if placed.form == "full")
    if full_one == full_two:
        assert forms(two)[: len(forms(one))] == forms(one)


def test_the_newest_posts_stay_full():
    """BrowserOS keeps the recent posts in full, older posts up to 85 % and compressed posts up to 95 %."""
    said = [("user", 100, 20, (), ())] * 30
    parted = partition(path_of(*said), 1000, BudgetConfig(window_posts=2))
    full = sum(placed.form == "full" for placed in parted.kept)
    small = sum(placed.form == "compressed" for placed in parted.kept)
    assert (full, small) == (8, 5)
    parted = partition(path_of(*said), 1000, BudgetConfig(window_posts=9))
    assert [placed.form for placed in parted.kept] == ["full"] * 9


def test_a_large_post_is_cut_and_displaces_no_other():
    said = [("user", 20, None, (), ())] * 10
    said[4] = ("assistant", 50_000, None, (), ())
    parted = partition(path_of(*said), 1000, BudgetConfig())
    assert [(p.form, p.tokens) for p in parted.kept if p.post.seq == 5] == [("cut", 250)]
    assert len(parted.kept) == 10


def test_a_post_read_only_compressed_stays_compressed():
    path = path_of(*[("user", 400, 20, (), ())] * 6)
    path[1] = msgspec.structs.replace(path[1], message=None)
    parted = partition(path, 100_000, BudgetConfig())
    forms = [placed.form for placed in parted.kept]
    assert forms[:2] == ["compressed", "compressed"]
    assert forms[-1] == "full"


def test_leading_results_without_their_call_are_left_out():
    said = [("tool", 20, None, (), ("gone",)), ("tool", 20, None, (), ("gone2",)), ("user", 20, None, (), ())]
    path = path_of(*said, unread=500)
    assert [p.post.seq for p in partition(path, 1000, BudgetConfig(), begins=False).kept] == [3]
    assert [p.post.seq for p in partition(path, 1000, BudgetConfig()).kept] == [1, 2, 3], (
        "the client's first messages stay"
    )


def test_an_old_open_query_stays():
    said = [("user", 300, None, (), ())]
    for n in range(40):
        said += [("assistant", 40, None, (f"c{n}",), ()), ("tool", 60, None, (), (f"c{n}",))]
    parted = partition(path_of(*said), 1000, LIMITS, query=1)
    assert parted.kept[0].post.seq == 1
    assert parted.kept[1].post.seq > 2


def test_an_empty_path_gives_an_empty_window():
    parted = partition([], 100, LIMITS)
    assert (parted.kept, parted.dropped, least([], 0)) == ((), (), (0, 0))


def read_of(path, far):
    """Return what a store reads of a path: the newest posts up to the caps (ports.store.Look), in order."""
    found, used, small = [], 0, 0
    for post in reversed(path):
        used += min(post.tokens, far.post)
        if used <= far.full or not found:
            small += post.small_tokens if used > far.small_after else 0
            found.append(post)
            continue
        used = far.full  # from here on the store returns only compressed forms
        small += post.small_tokens
        if small > far.small:
            break
        found.append(msgspec.structs.replace(post, message=None, wire=None) if post.small else post)
    return found[::-1]


@given(paths(most=60), st.integers(60, 4000), st.integers(0, 1000), st.integers(0, 60))
def test_reading_more_of_the_path_changes_no_window(path, budget, front, reply):
    """The budget alone decides how much is read. Other blocks of the window only reduce it."""
    limits = BudgetConfig(context=9000, system=50, reply=reply, window_posts=6)
    query = next((post.seq for post in reversed(path) if post.role == "user"), 0)
    room = max(least(path, query)[1], min(budget, 8900, limits.max_short_term) - front)
    if room > budget:
        return
    read = read_of(path, reach(limits, budget))
    newer = sum(post.tokens for post in path if post.seq >= query)
    if query and newer > reach(limits, budget).full:
        return  # the query of such a long open round is read separately (engine.opening)
    whole = partition(path, room, limits, query=query)
    parted = partition(read, room, limits, query=query, begins=len(read) == len(path))
    assert [(p.post.seq, p.form, p.tokens) for p in parted.kept] == [(p.post.seq, p.form, p.tokens) for p in whole.kept]

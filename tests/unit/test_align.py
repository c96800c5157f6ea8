"""Tests of history alignment: where a resent history continues in the stored tree, against a brute-force reference."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuebook.engine.turn.alignment import TAIL, anchors, continue_at, same_conversation
from cuebook.interfaces.store import Alignment, PostSpot
from cuebook.records.conversation import Conversation


class Tree:
    """A conversation as a tree: posts are (parent, text), and seqs start at 1."""

    def __init__(self, *posts: tuple[int, str], head: int | None = None, updated_at: float = 0.0, name: str = "c"):
        self.posts = list(posts)
        self.head = len(posts) if head is None else head
        self.updated_at, self.name = updated_at, name

    @classmethod
    def line(cls, *texts: str, **more) -> "Tree":
        return cls(*((n, text) for n, text in enumerate(texts)), **more)

    def grow(self, parent: int, *texts: str) -> int:
        for text in texts:
            self.posts.append((parent, text))
            parent = len(self.posts)
        self.head = parent
        return parent

    def path(self, seq: int) -> list[int]:
        found = []
        while seq:
            found.append(seq)
            seq = self.posts[seq - 1][0]
        return found[::-1]

    def run(self, seq: int) -> int:
        while seq > 1 and self.posts[seq - 1][0] == seq - 1:
            seq -= 1
        return seq

    def align(self, history: Sequence[str]) -> Alignment:
        """Return the alignment that a store computes (the storage contract tests it)."""
        places = tuple(tuple(n for n, (_, said) in enumerate(self.posts, 1) if said == text) for text in history)
        named = {seq for seqs in places for seq in seqs} | ({self.head} - {0})
        spots = {seq: PostSpot(self.posts[seq - 1][0], len(self.path(seq)), self.run(seq)) for seq in named}
        runs = {}
        for seq in range(1, len(self.posts) + 1):
            follows = self.posts[self.run(seq) - 1][0]
            runs[self.run(seq)] = (follows, self.run(follows) if follows else 0)
        return Alignment(self.conversation(), places, spots, runs)

    def conversation(self) -> Conversation:
        return Conversation(
            id=self.name, no=1, user=None, persona=None, participants=(), head=self.head, last_seq=len(self.posts),
            turns=0, generation=0, created_at=0.0, updated_at=self.updated_at,
        )  # fmt: skip


def answers_in(history: Sequence[str]) -> frozenset[int]:
    """Return the messages that begin with "a": they are answers."""
    return frozenset(n for n, text in enumerate(history) if text.startswith("a"))


def alignment_of(tree: Tree, *history: str) -> tuple[int, int, bool]:
    """Return (parent of the new messages, index of the first new message, whether it is a side branch)."""
    found = continue_at(tree.align(history), answers_in(history))
    for number, seq in found.seqs.items():
        assert tree.posts[seq - 1][1] == history[number]
    assert (found.parent == 0) == (not found.seqs)
    return found.parent, found.first_new, found.is_side_branch


# ---- a reference ----------------------------------------------------------------------------------------------------


def reference(tree: Tree, history: Sequence[str]) -> tuple[int, int, bool]:  # noqa: C901
    """Apply the alignment rules by brute force over every run."""
    answers = answers_in(history)

    def depth(seq):
        return len(tree.path(seq))

    def runs(first):
        found = []
        for number in range(first, len(history)):
            for seq, (_, said) in enumerate(tree.posts, 1):
                members, at, here = {}, number, seq
                while at >= first and here and tree.posts[here - 1][1] == history[at]:
                    members[at] = here
                    at, here = at - 1, tree.posts[here - 1][0]
                if said == history[number]:
                    found.append(members)
        return found

    def rank(members):
        end, start = max(members), min(members)
        rooted = start == 0 and depth(members[0]) == 1
        return len(members), rooted, end, members[end] in tree.path(tree.head), members[end]

    line = [max(found, key=rank)] if (found := runs(0)) else []
    if not line:
        return 0, 0, True
    top = line[0][min(line[0])]
    way = tree.path(top)[:-1]
    front = 0
    while front < min(*line[0], len(way)) and tree.posts[way[front] - 1][1] == history[front]:
        front += 1
    if front:
        line.insert(0, dict(enumerate(way[:front])))
    while True:
        end = max(line[-1])
        below = [
            cut
            for members in runs(end + 1)
            if (cut := {n: s for n, s in members.items() if s != line[-1][end] and line[-1][end] in tree.path(s)})
        ]
        tail = max(below, key=rank_below) if below and (rank_below := rank) else None
        if not tail or len(tail) < TAIL or not answers & tail.keys():
            break
        line.append(tail)
    members = {n: s for each in line for n, s in each.items()}
    end, answered = max(members), bool(answers & members.keys())
    begins = 0 in members and depth(members[0]) == 1
    if 2 * len(members) < end + 1 or not (answered or begins or members[end] == tree.head):
        return 0, 0, True
    side = not answered and members[end] not in tree.path(tree.head)
    parent = first_new = posts = 0
    for each in line:
        between, skipped = min(each) - first_new, depth(each[min(each)]) - 1 - posts
        if between and between >= skipped:
            break
        first_new, parent = max(each) + 1, each[max(each)]
        posts = depth(parent)
    return parent, first_new, side


texts = st.sampled_from(["a1", "a2", "u1", "u2", "u3", "ok"])


@st.composite
def trees(draw):
    tree = Tree()
    for number in range(draw(st.integers(1, 14))):
        tree.posts.append((draw(st.integers(0, number) | st.just(number)), draw(texts)))
    tree.head = draw(st.integers(1, len(tree.posts)))
    return tree


@st.composite
def histories(draw):
    """Draw a path of a tree as a client may send it: trimmed, edited or with inserted messages."""
    tree = draw(trees())
    history = [tree.posts[seq - 1][1] for seq in tree.path(draw(st.integers(1, len(tree.posts))))]
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(history)))
        doing = draw(st.sampled_from(["insert", "edit", "drop", "front"]))
        if doing == "insert":
            history.insert(at, draw(texts | st.just("new")))
        elif doing == "edit" and at < len(history):
            history[at] = draw(texts | st.just("edited"))
        elif doing == "drop":
            del history[at : at + draw(st.integers(1, 4))]
        else:
            del history[: draw(st.integers(0, 3))]
    return tree, history


@given(histories())
@example((Tree.line("u1", "a1", "u1", "a1"), ["u1", "a1"]))
def test_alignment_matches_the_brute_force_reference(given_history):
    tree, history = given_history
    assert alignment_of(tree, *history) == reference(tree, history)


# ---- what clients do ------------------------------------------------------------------------------------------------


def long_line(rounds=10):
    return Tree.line(*(f"{kind}{n}" for n in range(1, rounds + 1) for kind in "ua"))


def test_a_full_history_continues_at_its_end():
    assert alignment_of(long_line(2), "u1", "a1", "u2", "a2", "u3") == (4, 4, False)


def test_a_history_trimmed_in_front_is_no_edit():
    assert alignment_of(long_line(), "u9", "a9", "u10", "a10", "u11") == (20, 4, False)
    assert alignment_of(long_line(), "a10", "u11") == (20, 1, False)


def test_a_history_trimmed_in_the_middle_is_no_edit():
    assert alignment_of(long_line(), "u1", "a1", "u9", "a9", "u10", "a10", "u11") == (20, 6, False)
    assert alignment_of(long_line(), "u1", "a1", "u2", "a2", "u3", "a3", "u10", "a10", "u11") == (20, 8, False)


def test_a_client_summary_in_place_of_posts_is_no_edit():
    assert alignment_of(long_line(), "so far: …", "u9", "a9", "u10", "a10", "u11") == (20, 5, False)
    assert alignment_of(long_line(), "u1", "a1", "so far: …", "u10", "a10", "u11") == (20, 5, False)
    assert alignment_of(long_line(), "so far: …", "a10", "u11") == (20, 2, False)


def test_an_edit_of_the_last_message_is_a_sibling():
    assert alignment_of(long_line(2), "u1", "a1", "edited") == (2, 2, False)
    assert alignment_of(long_line(2), "u1", "a1", "edited", "a2", "u3") == (2, 2, False)


def test_an_edit_in_the_middle_continues_before_the_edit():
    history = [f"{kind}{n}" for n in range(1, 11) for kind in "ua"]
    for at in (2, 3, 9, 17):
        assert alignment_of(long_line(), *history[:at], "edited", *history[at + 1 :], "u11") == (at, at, False)
    assert alignment_of(long_line(), *history[:4], "edited", "edited too", *history[6:], "u11") == (4, 4, False)


def test_an_edited_first_message_starts_a_new_branch():
    assert alignment_of(long_line(3), "edited", "a1", "u2", "a2", "u3", "a3", "u4") == (0, 0, False)


def test_inserted_messages_reach_the_model():
    assert alignment_of(long_line(3), "u1", "a1", "a note", "u2", "a2", "u3", "a3", "u4") == (2, 2, False)


def test_regenerate_continues_at_the_query():
    assert alignment_of(long_line(2), "u1", "a1", "u2") == (3, 3, False)
    assert alignment_of(long_line(1), "u1") == (1, 1, False)


def test_a_retried_unanswered_query_is_stored_once():
    tree = Tree.line("u1", "a1", "u2")
    assert alignment_of(tree, "u1", "a1", "u2") == (3, 3, False)
    assert alignment_of(tree, "u2") == (3, 1, False), "the head is found without its history"


def test_a_repeated_text_at_the_end_is_a_new_message():
    tree = Tree.line("u1", "a1", "ok", "a2", "ok", "a3")
    assert alignment_of(tree, "u1", "a1", "ok", "a2", "ok", "a3", "ok") == (6, 6, False)
    assert alignment_of(tree, "ok", "a3", "ok") == (6, 2, False)
    assert alignment_of(tree, "u1", "a1", "no", "ok") == (2, 2, False)


def test_an_old_query_alone_starts_a_new_branch():
    tree = Tree.line("u1", "a1", "ok", "a2", "u3", "a3")
    assert alignment_of(tree, "ok") == (0, 0, True)


def test_an_unrelated_call_is_a_side_branch_until_continued():
    tree = long_line(2)
    assert alignment_of(tree, "title?") == (0, 0, True)
    title = tree.grow(0, "title?")
    tree.head = 4
    assert alignment_of(tree, "title?") == (title, 1, True), "a repeated call is still a side branch"
    tree.grow(title, "a title")
    tree.head = 4
    assert alignment_of(tree, "title?") == (title, 1, True)
    assert alignment_of(tree, "title?", "a title", "shorter") == (6, 2, False)
    assert alignment_of(tree, "u1", "a1", "u2", "a2", "u3") == (4, 4, False)


def test_the_branch_that_contains_the_history_is_continued():
    tree = long_line(2)
    end = tree.grow(2, "other", "a9")
    assert alignment_of(tree, "u1", "a1", "other", "a9", "u3") == (end, 4, False)
    assert alignment_of(tree, "u1", "a1", "u2", "a2", "u3") == (4, 4, False), "the other branch is found too"


def test_the_heads_branch_wins_among_equal_branches():
    tree = Tree.line("u1", "a1", "u2", "a2")
    tree.grow(0, "edited", "a1", "u2", "a2")
    tree.head = 4
    assert alignment_of(tree, "u2", "a2", "u3") == (4, 2, False)
    tree.head = 8
    assert alignment_of(tree, "u2", "a2", "u3") == (8, 2, False)


def test_a_few_common_words_are_no_continuation():
    tree = Tree.line("u1", "a1", "ok", "a done", "u3", "a3")
    assert alignment_of(tree, "x1", "a x", "x2", "a y", "ok", "a done", "new") == (0, 0, True)


def test_an_empty_history_has_no_continuation():
    assert alignment_of(long_line(2)) == (0, 0, True)


# ---- without an id --------------------------------------------------------------------------------------------------


def matching_tree(history, *trees):
    found = same_conversation([tree.align(history) for tree in trees], answers_in(history))
    return (found.conversation.id, found.parent) if found else None


def test_without_an_id_a_common_answer_is_required():
    assert matching_tree(["u1"], Tree.line("u1", "a1")) is None
    assert matching_tree(["u1", "a1", "u2"], Tree.line("u1", "a1")) == ("c", 2)
    assert matching_tree(["hi", "a1", "u2"], Tree.line("u1", "a1")) is None, "one common phrase of two is not enough"


def test_without_an_id_the_longest_match_is_continued():
    short, long = Tree.line("u1", "a1", name="short", updated_at=9), Tree.line("u1", "a1", "u2", "a2", name="long")
    assert matching_tree(["u1", "a1", "u2", "a2", "u3"], short, long) == ("long", 4)
    assert matching_tree(["u1", "a1", "u3"], short, long) == ("short", 2), "the conversation that ends there wins"
    twin = Tree.line("u1", "a1", name="twin", updated_at=5)
    assert matching_tree(["u1", "a1", "u3"], twin, short) == ("short", 2), "the most recently used conversation wins"


def test_a_changing_first_message_does_not_hide_a_conversation():
    assert matching_tree(["now: 12:01", "a1", "u2", "a2", "u3"], Tree.line("now: 12:00", "a1", "u2", "a2")) == ("c", 0)


def test_newest_answers_are_queried_first():
    digests = [bytes([n]) for n in range(6)]
    assert anchors(digests, frozenset({1, 3, 5}), most=2) == [b"\x05", b"\x03"]


@pytest.mark.slow
def test_many_equal_posts_are_aligned_quickly():
    tree = Tree.line(*(text for n in range(400) for text in ("ok", f"a{n}", "ok", "a done")))
    history = [said for _, said in tree.posts]
    assert alignment_of(tree, *history, "ok") == (1600, 1600, False)
    assert alignment_of(tree, *history[700:], "ok") == (1600, 900, False)

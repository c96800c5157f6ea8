"""Tests of the prompt cache simulation: one test per rule of a provider, the examples of their guides, and
invariants."""

import re
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cuebook.errors import InvalidInput
from cuebook.records.answer import added
from cuebook.window.cache import CacheChunk, CacheSimulator, CacheUse
from cuebook.window.models import RULES, CacheRule, rule_for, rule_named

PREFIX, POINTS = RULES["openai-prefix"], RULES["openai-breakpoints"]
ANTHROPIC, GEMINI = replace(RULES["anthropic"], minimum=1024), RULES["gemini"]
SYSTEM = CacheChunk(2000, b"system", "system")


def simulate(rule, requests, *, explicit=True):
    """Return the totals of a fresh cache over requests, each with the second it was sent."""
    simulator, totals = CacheSimulator(rule), CacheUse()
    for now, chunks in requests:
        totals = added(totals, simulator.request(chunks, now, explicit=explicit))
    return totals


def chunk(role: str, name: str, tokens: int = 100, *, marked: bool = False, ends: bool = True) -> CacheChunk:
    return CacheChunk(tokens, name.encode(), role, marked, None, ends)


def user(name: str, tokens: int = 100, *, marked: bool = False, ends: bool = True) -> CacheChunk:
    return chunk("user", name, tokens, marked=marked, ends=ends)


def marked(one: CacheChunk) -> CacheChunk:
    return replace(one, marked=True)


def counts(use: CacheUse) -> tuple[int, int, int]:
    return use.read_tokens, use.write_tokens, use.uncached_tokens


def last(rule: CacheRule, *requests: list[CacheChunk], explicit: bool = True, gap: float = 1.0) -> tuple[int, int, int]:
    """Return read, written and uncached tokens of the last request, with requests `gap` seconds apart."""
    simulator = CacheSimulator(rule)
    uses = [simulator.request(sent, at * gap, explicit=explicit) for at, sent in enumerate(requests)]
    return counts(uses[-1])


# ---------------------------------------------------------------- the prefix rule (OpenAI before 5.6, Gemini)


def test_prefix_reads_the_longest_common_earlier_prefix():
    first = [SYSTEM, user("a", 1000), user("b", 1000)]
    other = [SYSTEM, user("c")]
    assert last(replace(PREFIX, step=1), first, other, [*first[:2], user("d")]) == (3000, 0, 100)


def test_prefix_is_rounded_down_to_128_tokens():
    assert last(PREFIX, [SYSTEM, user("a")], [SYSTEM, user("b")]) == (1920, 0, 180)


def test_prefix_of_gpt_5_5_is_cached_in_steps_of_2048_tokens():
    rule = rule_for("gpt-5.5")
    assert rule is not None
    long = chunk("system", "long", 5000)
    assert last(rule, [long, user("a")], [long, user("b")]) == (4096, 0, 1004)


def test_prefix_under_the_minimum_is_not_cached():
    short = chunk("system", "short", 1023)
    assert last(PREFIX, [short], [short]) == (0, 0, 1023)
    assert last(PREFIX, [short, user("a")], [short, user("b")]) == (0, 0, 1123)


def test_prefix_ignores_markers():
    request = [marked(SYSTEM), user("a", 1000)]
    assert last(replace(PREFIX, step=1), request, [SYSTEM, user("a", 1000)]) == (3000, 0, 0)


def test_prefix_credits_the_first_differing_chunk_by_its_common_bytes():
    before = CacheChunk(1000, b"1", "user", text=b"same" * 100 + b"x" * 400)
    after = CacheChunk(1000, b"2", "user", text=b"same" * 100 + b"y" * 400)
    assert last(replace(PREFIX, step=1), [SYSTEM, before], [SYSTEM, after]) == (2500, 0, 500)


def test_prefix_credits_no_part_of_a_chunk_without_text_or_of_another_role():
    text = b"same" * 100
    before = CacheChunk(1000, b"1", "user", text=text + b"x")
    rule = replace(PREFIX, step=1)
    assert last(rule, [SYSTEM, before], [SYSTEM, CacheChunk(1000, b"2", "user")]) == (2000, 0, 1000)
    assert last(rule, [SYSTEM, before], [SYSTEM, CacheChunk(1000, b"2", "tool", text=text)]) == (2000, 0, 1000)


def test_prefix_credits_no_part_of_an_expired_chunk():
    simulator = CacheSimulator(replace(PREFIX, step=1))
    simulator.request([SYSTEM, CacheChunk(1000, b"1", "user", text=b"same x")], 0)
    simulator.request([SYSTEM], 200)
    assert simulator.request([SYSTEM, CacheChunk(1000, b"2", "user", text=b"same y")], 400).read_tokens == 2000


def test_prefix_write_costs_no_more_than_input():
    use = CacheSimulator(PREFIX).request([SYSTEM], 0)
    assert (use.write_tokens, use.cost) == (0, 2000)


@pytest.mark.parametrize(("gap", "read"), [(300, 1920), (301, 0)])
def test_prefix_expires_after_its_ttl(gap, read):
    assert last(PREFIX, [SYSTEM, user("a")], [SYSTEM, user("b")], gap=gap)[0] == read


def test_reading_refreshes_a_prefix():
    assert last(PREFIX, *([SYSTEM, user(str(n))] for n in range(5)), gap=299)[0] == 1920


def test_gemini_caches_from_4096_tokens_and_2_5_from_2048():
    older = rule_for("gemini-2.5-flash")
    assert older is not None
    mid, long = chunk("system", "mid", 4095), chunk("system", "long", 4096)
    assert last(GEMINI, [mid], [mid])[0] == 0
    assert last(GEMINI, [long], [long])[0] == 4096
    assert last(older, [mid], [mid])[0] == 4095


# ---------------------------------------------------------------- OpenAI since 5.6


def test_breakpoint_reads_exactly_at_a_marker_and_writes_up_to_it():
    request = [marked(SYSTEM), user("a", marked=True), user("volatile 1", 50)]
    again = [marked(SYSTEM), user("a", marked=True), user("b", 300, marked=True), user("volatile 2", 50)]
    assert last(POINTS, request) == (0, 2100, 50)
    assert last(POINTS, request, again) == (2100, 300, 50)


def test_breakpoint_never_falls_back_to_an_unmarked_prefix():
    assert last(POINTS, [SYSTEM, user("a", marked=True)], [SYSTEM, user("b", marked=True)]) == (0, 2100, 0)


def test_breakpoint_is_missed_if_this_request_does_not_mark_it():
    old = [marked(SYSTEM), user("a", marked=True)]
    new = [marked(SYSTEM), user("a"), user("b", marked=True)]
    assert last(POINTS, old, new) == (2000, 200, 0)  # why the previous turn's anchor must be marked again


def test_explicit_mode_without_markers_caches_nothing():
    assert last(POINTS, [SYSTEM], [SYSTEM]) == (0, 0, 2000)


def test_the_longest_matching_breakpoint_is_read():
    request = [marked(SYSTEM), user("a", marked=True), user("b", marked=True)]
    assert last(POINTS, request, [*request[:2], user("c")]) == (2100, 0, 100)


def test_implicit_marker_is_on_the_newest_user_message():
    request = [SYSTEM, user("a"), chunk("assistant", "x"), user("b"), chunk("assistant", "y")]
    assert last(POINTS, request, explicit=False) == (0, 2300, 100)


def test_implicit_marker_is_on_the_last_consecutive_tool_result():
    request = [
        SYSTEM,
        user("a"),
        chunk("tool_use", "x"),
        chunk("tool", "1"),
        chunk("tool", "2"),
        chunk("assistant", "y"),
    ]
    assert last(POINTS, request, explicit=False) == (0, 2400, 100)


def test_implicit_marker_is_on_the_front_without_messages():
    request = [chunk("tools", "t", 500), SYSTEM, chunk("developer", "d"), chunk("assistant", "x")]
    assert last(POINTS, request, explicit=False) == (0, 2600, 100)


def test_later_developer_messages_are_no_implicit_boundary():
    request = [SYSTEM, user("a"), chunk("developer", "d")]
    assert last(POINTS, request, explicit=False) == (0, 2100, 100)


def test_implicit_marker_reads_an_append_only_conversation():
    first = [SYSTEM, user("a")]
    assert last(POINTS, first, [*first, chunk("assistant", "x"), user("b")], explicit=False) == (2100, 200, 0)


def test_implicit_write_on_a_volatile_newest_message_is_paid_each_time():
    simulator = CacheSimulator(POINTS)
    for n in range(3):
        use = simulator.request([marked(SYSTEM), user(f"volatile {n}", 500)], n, explicit=False)
        assert use.write_tokens == (2500 if n == 0 else 500)
        assert use.cost == pytest.approx(1.25 * 2500 if n == 0 else 0.1 * 2000 + 1.25 * 500)


@pytest.mark.parametrize(("added", "read"), [(20, 2100), (21, 0)])
def test_implicit_mode_checks_20_earlier_message_ends(added, read):
    first = [SYSTEM, user("a")]
    assert last(POINTS, first, [*first, *(user(f"b{n}") for n in range(added))], explicit=False)[0] == read


def test_a_tool_result_before_another_is_no_message_end():
    first = [SYSTEM, user("a"), chunk("tool_use", "x"), chunk("tool", "1")]
    assert last(POINTS, first, [*first, chunk("assistant", "y"), user("b")], explicit=False)[0] == 2300
    assert last(POINTS, first, [*first, chunk("tool", "2"), user("b")], explicit=False)[0] == 0


def test_implicit_mode_checks_the_end_of_the_front():
    many = [user(f"b{n}") for n in range(30)]
    assert last(POINTS, [SYSTEM], [SYSTEM, *many], explicit=False)[0] == 2000


def test_explicit_mode_misses_unmarked_implicit_writes():
    for mark, read in ((False, 0), (True, 2100)):
        simulator = CacheSimulator(POINTS)
        simulator.request([SYSTEM, user("a")], 0, explicit=False)
        assert simulator.request([SYSTEM, user("a", marked=mark), user("b", marked=True)], 1).read_tokens == read


def test_extending_a_message_prevents_the_implicit_read_of_its_beginning():
    first = [SYSTEM, user("a")]
    assert last(POINTS, first, [SYSTEM, user("a", ends=False), user("b")], explicit=False)[0] == 0


def test_a_marked_block_is_read_when_later_text_changes():
    front = [SYSTEM, user("a", marked=True, ends=False)]
    assert last(POINTS, [*front, user("v1")], [*front, user("v2")]) == (2100, 0, 100)


def test_only_the_latest_four_markers_are_written():
    five = [marked(SYSTEM), *(user(f"a{n}", marked=True) for n in range(4))]
    assert last(POINTS, five, [marked(SYSTEM), user("b")])[0] == 0
    assert last(POINTS, five, [SYSTEM, user("a0", marked=True), user("b")])[0] == 2100


def test_the_implicit_marker_uses_one_of_the_four_writes():
    four = [marked(SYSTEM), *(user(f"a{n}", marked=True) for n in range(3)), user("newest")]
    ask = [marked(SYSTEM), user("b")]
    assert last(POINTS, four, ask)[0] == 2000
    assert last(POINTS, four, ask, explicit=False)[0] == 0


def test_the_implicit_marker_on_a_marked_message_is_one_marker():
    four = [marked(SYSTEM), *(user(f"a{n}", marked=True) for n in range(3))]
    assert last(POINTS, four, [marked(SYSTEM), user("b")], explicit=False)[0] == 2000


def test_the_first_two_and_last_fifty_markers_are_checked():
    old = [SYSTEM, *(user(f"a{n}") for n in range(3))]
    many = [user(f"b{n}", marked=True) for n in range(50)]
    for at, read in ((1, 2100), (2, 2200), (3, 0)):
        written = [marked(one) if n == at else one for n, one in enumerate(old)]
        assert last(POINTS, written, [SYSTEM, *map(marked, old[1:]), *many])[0] == read


@pytest.mark.parametrize("role", ["assistant", "tool_use", "tools"])
def test_openai_ignores_markers_on_assistant_output_and_tools(role):
    request = [chunk(role, "x", 3000, marked=True)]
    assert last(POINTS, request, request) == (0, 0, 3000)


@pytest.mark.parametrize(("tokens", "read"), [(1023, 0), (1024, 1024)])
def test_breakpoint_prefixes_under_1024_tokens_are_silently_not_cached(tokens, read):
    request = [chunk("system", "s", tokens, marked=True)]
    assert last(POINTS, request, request) == (read, 0, tokens - read)


@pytest.mark.parametrize(("gap", "read"), [(1800, 2000), (1801, 0)])
def test_breakpoints_expire_after_30_minutes(gap, read):
    assert last(POINTS, [marked(SYSTEM)], [marked(SYSTEM)], gap=gap)[0] == read


def test_reading_refreshes_breakpoints_without_a_write():
    assert last(POINTS, *([[marked(SYSTEM)]] * 5), gap=1799) == (2000, 0, 0)


def test_an_unmarked_breakpoint_is_refreshed_by_reading():
    first = [SYSTEM, user("a")]
    assert last(POINTS, first, [*first, user("b")], [*first, user("c")], explicit=False, gap=1799)[0] == 2100


def test_an_expired_breakpoint_is_written_again():
    assert last(POINTS, [marked(SYSTEM)], [marked(SYSTEM)], gap=1801) == (0, 2000, 0)


def test_writing_once_and_reading_once_costs_1_35():
    totals = simulate(POINTS, [(0, [marked(SYSTEM)]), (1, [marked(SYSTEM)])])
    assert totals.cost == pytest.approx(1.35 * 2000)  # the guide's example


# ---------------------------------------------------------------- Anthropic


def blocks(count: int, *marks: int) -> list[CacheChunk]:
    return [chunk("user", f"block {n}", 200, marked=n in marks) for n in range(1, count + 1)]


def test_anthropic_looks_back_20_positions_from_a_marker():
    ten, fifteen = blocks(10, 10), blocks(15, 15)  # the guide's example, block by block
    assert last(ANTHROPIC, ten) == (0, 2000, 0)
    assert last(ANTHROPIC, ten, fifteen) == (2000, 1000, 0)
    assert last(ANTHROPIC, ten, fifteen, blocks(35, 35)) == (0, 7000, 0)
    assert last(ANTHROPIC, ten, fifteen, blocks(34, 34)) == (3000, 3800, 0)


def test_anthropic_looks_back_from_each_marker():
    assert last(ANTHROPIC, blocks(10, 10), blocks(15, 15), blocks(35, 15, 35)) == (3000, 4000, 0)


def test_anthropic_matches_earlier_writes_not_stable_content():
    stable = blocks(5)
    assert last(ANTHROPIC, [*stable, user("t1", 200, marked=True)], [*stable, user("t2", 200, marked=True)])[0] == 0


def test_anthropic_counts_a_run_of_tool_results_as_one_position():
    start = blocks(10, 10)
    for role, read in (("tool", 2000), ("tool_use", 2000), ("user", 0)):
        burst = [chunk(role, f"r{n}") for n in range(25)]
        assert last(ANTHROPIC, start, [*blocks(10), *burst, user("end", marked=True)])[0] == read


def test_anthropic_automatic_marker_moves_with_the_last_block():
    first = [SYSTEM, user("1"), chunk("assistant", "1"), user("2")]
    second = [*first, chunk("assistant", "2"), user("3")]
    assert last(ANTHROPIC, first, explicit=False) == (0, 2300, 0)
    assert last(ANTHROPIC, first, second, explicit=False) == (2300, 200, 0)


def test_anthropic_rejects_a_fifth_marker():
    with pytest.raises(InvalidInput, match=re.escape("allows 4")):
        last(ANTHROPIC, blocks(5, 1, 2, 3, 4, 5))


def test_anthropic_automatic_marker_uses_a_slot_on_unmarked_blocks():
    with pytest.raises(InvalidInput, match=r"Too many cache markers .*: 5"):
        last(ANTHROPIC, blocks(10, 1, 2, 3, 4), explicit=False)
    assert last(ANTHROPIC, blocks(10, 1, 2, 3, 10), explicit=False) == (0, 2000, 0)


def test_anthropic_assistant_blocks_can_be_marked():
    request = [SYSTEM, chunk("assistant", "x", marked=True)]
    assert last(ANTHROPIC, request, request) == (2100, 0, 0)


def test_anthropic_changed_tools_invalidate_everything_after_them():
    front = [marked(SYSTEM), user("a", marked=True)]
    assert last(ANTHROPIC, [chunk("tools", "t1"), *front], [chunk("tools", "t2"), *front])[0] == 0


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-opus-5", 512), ("claude-sonnet-4-5-20250929", 1024), ("claude-opus-4-8", 1024),
        ("claude-opus-4-7", 2048), ("claude-3-5-haiku-latest", 2048), ("claude-opus-4-5", 4096),
        ("claude-haiku-4-5", 4096), ("claude-unheard-of", 4096),
    ],
)  # fmt: skip
def test_anthropic_minimum_length_depends_on_the_model(model, minimum):
    rule = rule_for(model)
    assert rule is not None
    for tokens, read in ((minimum - 1, 0), (minimum, minimum)):
        request = [chunk("system", "s", tokens, marked=True)]
        assert last(rule, request, request) == (read, 0, tokens - read)


@pytest.mark.parametrize(("name", "ttl", "write"), [("anthropic", 300, 1.25), ("anthropic-1h", 3600, 2.0)])
def test_anthropic_ttl_is_five_minutes_or_an_hour(name, ttl, write):
    simulator = CacheSimulator(replace(RULES[name], minimum=1024))
    assert simulator.request([marked(SYSTEM)], 0).cost == pytest.approx(write * 2000)
    assert simulator.request([marked(SYSTEM)], ttl).cost == pytest.approx(0.1 * 2000)
    assert counts(simulator.request([marked(SYSTEM)], 2 * ttl)) == (2000, 0, 0)
    assert counts(simulator.request([marked(SYSTEM)], 3 * ttl + 1)) == (0, 2000, 0)


# ---------------------------------------------------------------- which rule


@pytest.mark.parametrize(
    ("model", "base_url", "name"),
    [
        ("gpt-5.6", None, "openai-breakpoints"),
        ("gpt-5.6-sol-2026-07-01", "https://api.openai.com/v1", "openai-breakpoints"),
        ("gpt-6-luna", "https://eu.api.openai.com/v1", "openai-breakpoints"),
        ("openai/gpt-5.10", None, "openai-breakpoints"),
        ("ft:gpt-4o-mini:acme::1", None, "openai-prefix"),
        ("gpt-4.1-mini", None, "openai-prefix"),
        ("gpt-5-2025-08-07", None, "openai-prefix"),
        ("gpt-5.5", None, "openai-prefix"),
        ("o3-mini", None, "openai-prefix"),
        ("claude-sonnet-5", "https://api.anthropic.com", "anthropic"),
        ("models/gemini-3.6-flash", "https://generativelanguage.googleapis.com/v1beta/openai/", "gemini"),
        ("gemini-2.5-pro", "https://europe-west1-aiplatform.googleapis.com", "gemini"),
        ("gpt-4-turbo", None, None),  # "gpt-4o and newer"
        ("gpt-3.5-turbo", None, None),
        ("gpt-oss-120b", None, None),
        ("llama-4", None, None),
        ("gpt-5.6", "http://localhost:8000/v1", None),  # a compatible server keeps its own rules
        ("gpt-5.6", "https://acme.openai.azure.com", None),
        ("gpt-5.6", "https://api.openai.com.evil.example/v1", None),
        ("gpt-5.6", "https://api.openai.com:443@evil.example/v1", None),
        ("claude-sonnet-5", "https://api.openai.com/v1", None),
        ("gpt-5.6", "", None),
    ],
)
def test_rule_for_matches_models_only_at_their_own_host(model, base_url, name):
    rule = rule_for(model, base_url)
    assert (rule and rule.name) == name


@pytest.mark.parametrize(
    ("model", "read"),
    [("gpt-4o", 0.5), ("gpt-4.1", 0.25), ("gpt-5.2", 0.1), ("gpt-6.1-sol", 0.05), ("claude-opus-5-5", 0.05)],
)
def test_rule_for_returns_the_models_read_price(model, read):
    rule = rule_for(model)
    assert rule is not None
    assert rule.read == read


def test_a_caller_can_name_a_rule():
    assert rule_named("openai-prefix") is PREFIX
    with pytest.raises(InvalidInput, match="openai-breakpoints"):
        rule_named("opneai")


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_every_rule_has_a_source_and_a_date(rule):
    assert rule.source.startswith("https://")
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", rule.checked)
    assert 0 < rule.read < 1 <= rule.write


# ---------------------------------------------------------------- sixty turns


def sixty_turns(marks: str) -> list[tuple[float, list[CacheChunk]]]:
    """Return one request per minute. `marks`: s system part, p previous query, q query, v volatile block after it."""
    requests = []
    for turn in range(60):
        past = [
            one
            for n in range(turn)
            for one in (user(f"q{n}", marked="p" in marks and n == turn - 1), chunk("assistant", f"a{n}", 240))
        ]
        front = chunk("system", "s", 2100, marked="s" in marks)
        tail = [user(f"q{turn}", marked="q" in marks), user(f"v{turn}", 220, marked="v" in marks)]
        requests.append((60.0 * turn, [front, *past, *tail]))
    return requests


def test_sixty_turns_have_a_stable_prefix_of_about_95_percent():
    sizes = [sum(one.tokens for one in sent) for _, sent in sixty_turns("")]
    common = sum(size - 220 for size in sizes[:-1])  # the next request repeats this prefix
    assert common / sum(sizes[1:]) == pytest.approx(0.955, abs=0.001)


SONNET = rule_for("claude-sonnet-4-5")


@pytest.mark.parametrize(
    ("rule", "marks", "explicit", "share", "cost"),
    [
        # the simulated figures of the design notes: the same stable prefix in four ways
        (PREFIX, "", True, 0.948, 0.147),
        (POINTS, "sv", True, 0.166, 1.059),  # with a marker on the volatile tail, only the system part is ever read
        (POINTS, "s", False, 0.166, 1.059),  # the implicit marker gives the same
        (POINTS, "spq", True, 0.953, 0.150),  # markers before the volatile block
        # markers around it
        (POINTS, "", False, 0.0, 1.25),
        (POINTS, "sq", True, 0.166, 1.055),  # without a new marker the previous anchor is missed
        (POINTS, "spq", False, 0.953, 0.155),  # the volatile block is written implicitly in addition to good anchors
        (SONNET, "sv", True, 0.166, 1.059),
        (SONNET, "sq", True, 0.953, 0.150),  # the look-back finds the previous anchor
        (SONNET, "spq", True, 0.953, 0.150),
        (GEMINI, "", True, 0.928, 0.165),
    ],
)
def test_marker_positions_decide_the_cost_of_sixty_turns(rule, marks, explicit, share, cost):
    totals = simulate(rule, sixty_turns(marks), explicit=explicit)
    assert totals.read_share == pytest.approx(share, abs=0.001)
    assert totals.cost / totals.input_tokens == pytest.approx(cost, abs=0.001)


# ---------------------------------------------------------------- for any row of requests


def test_an_empty_request_costs_nothing():
    for rule in RULES.values():
        assert CacheSimulator(rule).request([], 0, explicit=False) == CacheUse(requests=1)
    assert CacheUse().read_share == 0.0


def test_a_marker_is_not_part_of_the_prefix():
    assert last(POINTS, [marked(SYSTEM), user("a", marked=True)], [SYSTEM, user("a", marked=True)])[0] == 2100


def test_a_role_is_part_of_the_prefix():
    assert last(POINTS, [chunk("user", "x", 2000, marked=True)], [chunk("tool", "x", 2000, marked=True)])[0] == 0


def test_a_request_with_an_earlier_time_expires_nothing():
    simulator = CacheSimulator(POINTS)
    for now in (1000, 500, 2800):
        use = simulator.request([marked(SYSTEM)], now)
    assert use.read_tokens == 2000


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_expired_entries_are_dropped(rule):
    simulator = CacheSimulator(rule)
    for n in range(50):
        simulator.request([chunk("system", f"s{n}", 5000, marked=True), user(f"u{n}")], n * 10_000)
    assert sum(len(held) for held in vars(simulator).values() if isinstance(held, dict)) <= 4


WORDS = st.sampled_from([b"", b"a", b"ab", b"abc", b"abd", b"b"])
CHUNKS = st.builds(
    lambda text, role, marked, ends, with_text: CacheChunk(
        700 * len(text), text, role, marked, text if with_text else None, ends
    ),
    WORDS, st.sampled_from(["tools", "system", "user", "assistant", "tool_use", "tool"]),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
REQUESTS = st.lists(st.tuples(st.floats(0, 4000), st.lists(CHUNKS, max_size=8), st.booleans()), max_size=6)
RULE = st.sampled_from([replace(rule, excess="unwritten") for rule in RULES.values()])


def run(rule: CacheRule, requests: list[tuple[float, list[CacheChunk], bool]]) -> list[CacheUse]:
    simulator = CacheSimulator(rule)
    return [simulator.request(sent, now, explicit=explicit) for now, sent, explicit in requests]


def common_tokens(one: list[CacheChunk], other: list[CacheChunk]) -> float:
    """Return the tokens of the common prefix of `one` and `other`; the first differing chunk counts by its bytes."""
    total = 0.0
    for mine, theirs in zip(one, other, strict=False):
        if (mine.digest, mine.role) == (theirs.digest, theirs.role):
            total += mine.tokens
            continue
        if mine.text and theirs.text:
            same = takewhile(lambda pair: pair[0] == pair[1], zip(mine.text, theirs.text, strict=False))
            total += mine.tokens * sum(1 for _ in same) / len(mine.text)
        break
    return total


@given(RULE, REQUESTS)
def test_read_written_and_uncached_tokens_add_up(rule, requests):
    for use, (_, sent, _) in zip(run(rule, requests), requests, strict=True):
        assert min(counts(use)) >= 0
        assert sum(counts(use)) == use.input_tokens == sum(one.tokens for one in sent)


@given(RULE, REQUESTS)
def test_only_tokens_of_earlier_requests_are_read(rule, requests):
    for at, use in enumerate(run(rule, requests)):
        sent = requests[at][1]
        assert use.read_tokens <= max((common_tokens(sent, old) for _, old, _ in requests[:at]), default=0)


@given(RULE, REQUESTS)
def test_cost_is_between_all_read_and_all_written(rule, requests):
    for use in run(rule, requests):
        assert rule.read * use.input_tokens - 1e-6 <= use.cost <= rule.write * use.input_tokens + 1e-6


@given(RULE, REQUESTS)
def test_reads_and_writes_reach_the_minimum_length(rule, requests):
    for use in run(rule, requests):
        assert use.read_tokens == 0 or use.read_tokens >= rule.minimum
        assert use.write_tokens == 0 or use.read_tokens + use.write_tokens >= rule.minimum
        assert use.read_tokens % rule.step == 0


@given(RULE, REQUESTS)
def test_the_simulation_is_deterministic(rule, requests):
    assert run(rule, requests) == run(rule, requests)


@given(RULE, st.lists(st.tuples(st.floats(0, 4000), st.lists(CHUNKS, max_size=8)), max_size=6), st.booleans())
def test_totals_are_the_sums_of_the_requests(rule, requests, explicit):
    totals = simulate(rule, requests, explicit=explicit)
    uses = run(rule, [(now, sent, explicit) for now, sent in requests])
    assert totals.requests == len(uses)
    assert totals.input_tokens == sum(use.input_tokens for use in uses)
    assert totals.read_tokens == sum(use.read_tokens for use in uses)
    assert totals.write_tokens == sum(use.write_tokens for use in uses)
    assert totals.uncached_tokens == sum(use.uncached_tokens for use in uses)
    assert totals.cost == pytest.approx(sum(use.cost for use in uses))

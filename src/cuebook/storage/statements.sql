-- ---- Conversations: the tree of posts, turns, summaries, idempotency keys, full-text search --------------

-- name: conversation_by_id
-- Select a conversation's row by tenant and id.
SELECT *, user_id AS "user" FROM conversation WHERE tenant = :tenant AND id = :id;

-- name: conversation_counts
-- Count all conversations and their posts.
SELECT count(*) AS conversations, CAST(coalesce(sum(last_seq), 0) AS BIGINT) AS posts FROM conversation;

-- name: conversation_insert
-- Insert a conversation.
INSERT INTO conversation (tenant, id, user_id, persona, participants, speakers, metadata, head, last_seq, turns, generation, created_at,
    updated_at, fence, lease_turn, lease_until, open_round, mark, backlog, backlog_tokens, compact_not_before, compact_last_at,
    compact_failures)
VALUES (:tenant, :id, :user, :persona, :participants, '[]', '{}', 0, 0, 0, 0, :now, :now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);

-- name: conversation_grow
-- Update head and counters after posts were stored; return whether a turn waits for tool results.
UPDATE conversation SET head = :head, last_seq = :last_seq, generation = generation + 1, updated_at = :now, mark = :mark,
    backlog = :backlog, backlog_tokens = :backlog_tokens, speakers = :speakers
WHERE no = :no RETURNING EXISTS (SELECT 1 FROM turn t WHERE t.tenant = :tenant AND t.conversation = :no AND t.waiting > 0);

-- name: conversation_head
-- Move the head to another path, with its mark and backlog.
UPDATE conversation SET head = :head, mark = :mark, backlog = :backlog, backlog_tokens = :backlog_tokens,
    generation = generation + 1, updated_at = :now WHERE no = :no;

-- name: conversation_lease
-- Give the lease to a turn.
UPDATE conversation SET turns = :turns, fence = :fence, lease_turn = :turn, lease_until = :until, open_round = :open_round,
    lease_holder = :holder WHERE no = :no;

-- name: conversation_renew
-- Renew the lease if it is still this one.
UPDATE conversation SET lease_until = :until WHERE no = :no AND fence = :fence AND lease_turn = :turn RETURNING no;

-- name: conversation_release
-- Release the lease.
UPDATE conversation SET lease_turn = 0, lease_until = 0, lease_holder = NULL, open_round = :open_round, updated_at = :now WHERE no = :no;

-- name: conversation_turns
-- Count a new turn that does not hold the lease.
UPDATE conversation SET turns = :turns WHERE no = :no;

-- name: parallel_insert
-- Insert the lease of a parallel turn.
INSERT INTO parallel_turn (tenant, conversation, turn, lease_until, lease_holder) VALUES (:tenant, :no, :turn, :until, :holder);

-- name: parallel_renew
-- Renew the lease of a parallel turn.
UPDATE parallel_turn SET lease_until = :until WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- name: parallel_turns
-- Select the running parallel turns of a conversation.
SELECT turn FROM parallel_turn WHERE tenant = :tenant AND conversation = :no ORDER BY turn;

-- name: parallel_get
-- Select the lease of a parallel turn.
SELECT lease_until FROM parallel_turn WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- name: parallel_delete
-- Delete the lease of a parallel turn.
DELETE FROM parallel_turn WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- name: conversation_round
-- Set the open round, 0 for none.
UPDATE conversation SET open_round = :open_round WHERE no = :no;

-- name: conversation_owner
-- Set the owner of a conversation.
UPDATE conversation SET user_id = :user, participants = :participants WHERE no = :no;

-- name: conversation_participants
-- Set the participants of a conversation.
UPDATE conversation SET participants = :participants, company = :company WHERE no = :no;

-- name: participant_insert
-- Insert a participant of a conversation.
INSERT INTO participant (tenant, user_id, conversation) VALUES (:tenant, :user, :no) ON CONFLICT DO NOTHING;

-- name: participant_delete
-- Delete a participant of a conversation.
DELETE FROM participant WHERE tenant = :tenant AND user_id = :user AND conversation = :no;

-- name: delete_participants
-- Delete all participants of a conversation.
DELETE FROM participant WHERE tenant = :tenant AND conversation = :no;

-- name: conversations_joined
-- Select the conversations that a user joined, newest first.
SELECT conversation FROM participant WHERE tenant = :tenant AND user_id = :user ORDER BY conversation DESC LIMIT :limit;

-- name: conversation_metadata
-- Replace a conversation's metadata.
UPDATE conversation SET metadata = :metadata WHERE no = :no;

-- name: conversation_utility
-- Set whether a conversation is a utility call.
UPDATE conversation SET utility = :utility WHERE no = :no;

-- name: conversation_frame
-- Set the digests of the first and last words of a conversation's first message.
UPDATE conversation SET opening = :opening, ending = :ending WHERE no = :no;

-- name: answers_at_heads
-- Select the last posts of a user's newest conversations that end with an answer.
SELECT no, message, body FROM (
    SELECT no, head, updated_at FROM (
        SELECT * FROM conversation WHERE tenant = :tenant AND utility = 0 ORDER BY updated_at DESC LIMIT :looked
    ) WHERE user_id IS :user
) JOIN post ON post.tenant = :tenant AND conversation = no AND seq = head AND role = 'assistant'
ORDER BY updated_at DESC LIMIT :limit;

-- name: framed_texts
-- Select the first messages of a user's newest conversations that begin or end with the same words.
SELECT message, body FROM post WHERE tenant = :tenant AND seq = 1 AND conversation IN (
    SELECT no FROM conversation WHERE tenant = :tenant AND opening = :opening AND coalesce(user_id, '') = coalesce(:user, '')
    ORDER BY no DESC LIMIT :limit)
UNION SELECT message, body FROM post WHERE tenant = :tenant AND seq = 1 AND conversation IN (
    SELECT no FROM conversation WHERE tenant = :tenant AND ending = :ending AND coalesce(user_id, '') = coalesce(:user, '')
    ORDER BY no DESC LIMIT :limit);

-- name: conversations_page
-- Select a page of a tenant's conversations without utility calls, newest first, from a cursor on.
SELECT *, user_id AS "user" FROM conversation
WHERE tenant = :tenant AND utility = 0 AND (updated_at < :before OR (updated_at = :before AND no < :before_no))
    AND (:user IS NULL OR (user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(participants) WHERE value = :user))
ORDER BY updated_at DESC, no DESC LIMIT :limit;

-- name: post_at
-- Select the fields of a post that an insertion after it needs.
SELECT seq, run_start, run_parent, round, path_tokens, path_count, chain FROM post
WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: post_by_id
-- Select a post's seq and digest by id.
SELECT seq, digest FROM post WHERE tenant = :tenant AND conversation = :no AND id = :id;

-- name: post_digests
-- Select the digests of posts by their ids.
SELECT id, digest FROM post WHERE tenant = :tenant AND conversation = :no AND id IN (SELECT value FROM json_each(:ids));

-- name: post_insert
-- Insert a post.
INSERT INTO post (tenant, conversation, seq, id, parent, run_start, run_parent, round, sender, recipient, role, state, message, small,
    parts, wire, body, created_at, tokens, small_tokens, path_tokens, path_count, digest, chain)
VALUES (:tenant, :no, :seq, :id, :parent, :run_start, :run_parent, :round, :sender, :recipient, :role, :state, :message, :small,
    :parts, :wire, :body, :created_at, :tokens, :small_tokens, :path_tokens, :path_count, :digest, :chain)
ON CONFLICT (tenant, conversation, id) DO NOTHING;

-- name: post_text_insert
-- Add a post to the full-text index. The rowid is conversation << 32 | seq.
INSERT INTO post_text (rowid, scope, key) VALUES (:id, :scope, :key);

-- name: run_of
-- Select the run of a post.
SELECT run_start, run_parent FROM post WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: path_stretch
-- Select lean posts of a stretch of a run, newest first. If a body is stored apart, message is NULL and wire is its digest.
SELECT seq, id, round, role, sender, message, tokens, small, small_tokens, path_tokens, created_at, parts, coalesce(body, wire), state FROM post
WHERE tenant = :tenant AND conversation = :no AND seq BETWEEN :first AND :last ORDER BY seq DESC;

-- name: small_stretch
-- Select posts of a stretch in compressed form if any, newest first. Wire is the digest of a body that is stored apart.
SELECT seq, id, round, role, sender, CASE WHEN small IS NULL THEN message END, tokens, small, small_tokens, path_tokens, created_at,
    parts, CASE WHEN small IS NULL OR length(parts) = 0 THEN coalesce(body, wire) END, state FROM post
WHERE tenant = :tenant AND conversation = :no AND seq BETWEEN :first AND :last ORDER BY seq DESC;

-- name: posts_stretch
-- Select whole posts of a stretch of a run, oldest first. If a body is stored apart, message is NULL and wire is its digest.
SELECT id, seq, parent, round, sender, recipient, role, message, created_at, tokens,
    CASE WHEN body IS NULL THEN parts END AS parts, coalesce(body, wire) AS wire, state, digest FROM post
WHERE tenant = :tenant AND conversation = :no AND seq BETWEEN :first AND :last ORDER BY seq;

-- name: sums_at
-- Select the running sums at a post.
SELECT path_tokens, path_count, tokens FROM post WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: posts_by_digests
-- Select posts of a conversation equal to some messages, as one row of JSON; `at` is the message's number. `digests` are concatenated.
SELECT json_group_array(json_array(CAST(j.value AS INTEGER), p.seq, p.parent, p.path_count, p.run_start, p.run_parent))
FROM json_each(:at) j CROSS JOIN post p INDEXED BY post_digest
WHERE p.tenant = :tenant AND p.digest = substr(:digests, 1 + 16 * CAST(j.value AS INTEGER), 16) AND p.conversation = :no;

-- name: posts_by_chain
-- Select the posts of a conversation at which a path with this chained digest ends, newest first.
SELECT conversation, seq FROM post INDEXED BY post_chain
WHERE tenant = :tenant AND chain = :chain AND conversation = :no AND path_count = :depth ORDER BY seq DESC LIMIT :limit;

-- name: posts_by_chain_of_user
-- Select the posts of a user's conversations at which a path with this chained digest ends, newest first.
SELECT conversation, seq FROM post INDEXED BY post_chain WHERE tenant = :tenant AND chain = :chain AND path_count = :depth
    AND coalesce((SELECT user_id FROM conversation WHERE no = post.conversation), '') = coalesce(:user, '')
ORDER BY +conversation DESC, +seq DESC LIMIT :limit;

-- name: spot_of
-- Select the position of a post in its tree.
SELECT seq, parent, path_count, run_start, run_parent FROM post WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: conversations_by_digest
-- Select conversations of one user with a post of this digest, newest first.
SELECT DISTINCT p.conversation FROM post p INDEXED BY post_digest CROSS JOIN conversation c ON c.no = p.conversation
WHERE p.tenant = :tenant AND p.digest = :digest AND c.user_id IS :user ORDER BY p.conversation DESC LIMIT :limit;

-- name: conversation_by_no
-- Select a conversation's row by number.
SELECT *, user_id AS "user" FROM conversation WHERE tenant = :tenant AND no = :no;

-- name: turn_insert
-- Insert an open turn.
INSERT INTO turn (tenant, conversation, n, round, state, waiting, query_seq, reply_seq, steps, fence, metadata, created_at, closed_at)
VALUES (:tenant, :no, :n, :round, 'running', 0, :query_seq, 0, 1, :fence, :metadata, :now, NULL);

-- name: turn_step
-- Continue a waiting turn.
UPDATE turn SET waiting = 0, steps = steps + 1, fence = :fence, metadata = :metadata
WHERE tenant = :tenant AND conversation = :no AND n = :n AND state = 'running' AND waiting = 1 RETURNING steps, round;

-- name: turn_close
-- End a step's turn, or let it wait for tools.
UPDATE turn SET state = :state, waiting = :waiting, reply_seq = :reply_seq, closed_at = :closed_at, metadata = :metadata
WHERE tenant = :tenant AND conversation = :no AND n = :n;

-- name: turn_get
-- Select one turn.
SELECT * FROM turn WHERE tenant = :tenant AND conversation = :no AND n = :n;

-- name: turns_last
-- Select the newest turns, newest first.
SELECT * FROM turn WHERE tenant = :tenant AND conversation = :no ORDER BY n DESC LIMIT :limit;

-- name: turn_waiting
-- Select the turn that waits for tool results. `n + 0` keeps SQLite from reading all turns in the order of their key.
SELECT * FROM turn WHERE tenant = :tenant AND conversation = :no AND waiting > 0 ORDER BY n + 0 DESC LIMIT 1;

-- name: turns_on_run
-- Select turns that answered rounds opened in a run of a path, newest round first, newest turn first.
SELECT * FROM turn WHERE tenant = :tenant AND conversation = :no AND round BETWEEN :first AND :last
ORDER BY round DESC, n DESC LIMIT :limit;

-- name: rounds_of_turns
-- Select the state of each turn's round, oldest first.
SELECT round, state FROM turn WHERE tenant = :tenant AND conversation = :no ORDER BY n;

-- name: rounds_answered
-- Select rounds with an answer.
SELECT DISTINCT round FROM post WHERE tenant = :tenant AND conversation = :no AND role = 'assistant' AND round > 0;

-- name: step_insert
-- Insert an open step.
INSERT INTO step (tenant, conversation, turn, n, state, manifest, base, moves_head, partial, reply_seq, reply_usage, error)
VALUES (:tenant, :no, :turn, :n, 'running', :manifest, :base, :moves_head, NULL, 0, NULL, '');

-- name: step_manifest
-- Replace the manifest of a running step.
UPDATE step SET manifest = :manifest WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n;

-- name: step_partial
-- Save the partial answer of a running step.
UPDATE step SET partial = :partial WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n;

-- name: step_close
-- End a step.
UPDATE step SET state = :state, partial = NULL, reply_seq = :reply_seq, reply_usage = :usage, error = :error
WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n;

-- name: steps_of
-- Select a turn's steps in order.
SELECT n, state, manifest, base, moves_head, partial, reply_seq, reply_usage AS usage, error FROM step
WHERE tenant = :tenant AND conversation = :no AND turn = :turn ORDER BY n;

-- name: step_last
-- Select the newest step of a turn.
SELECT n, state, manifest, base, moves_head, partial, reply_seq, reply_usage AS usage, error FROM step
WHERE tenant = :tenant AND conversation = :no AND turn = :turn ORDER BY n DESC LIMIT 1;

-- name: blob_insert
-- Store a text once.
INSERT INTO blob (tenant, digest, body) VALUES (:tenant, :digest, :body) ON CONFLICT DO NOTHING;

-- name: blob_use
-- Insert a conversation's reference to a text.
INSERT INTO blob_use (tenant, digest, conversation) VALUES (:tenant, :digest, :no) ON CONFLICT DO NOTHING;

-- name: blob_get
-- Select a stored text.
SELECT body FROM blob WHERE tenant = :tenant AND digest = :digest;

-- name: blobs_of
-- Select the texts that a conversation references.
SELECT b.digest, b.body FROM blob_use u JOIN blob b ON b.tenant = u.tenant AND b.digest = u.digest
WHERE u.tenant = :tenant AND u.conversation = :no;

-- name: text_get
-- Select a stored text, if one of the user's conversations references it.
SELECT body FROM blob b WHERE b.tenant = :tenant AND b.digest = :digest AND (:user IS NULL OR EXISTS (
    SELECT 1 FROM blob_use u JOIN conversation c ON c.no = u.conversation WHERE u.tenant = b.tenant AND u.digest = b.digest
    AND ((c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user))));

-- name: summary_get
-- Select one summary.
SELECT * FROM summary WHERE tenant = :tenant AND conversation = :no AND version = :version;

-- name: summary_marks
-- Select the end of each summary, farthest and newest first.
SELECT version, upto_seq, previous FROM summary WHERE tenant = :tenant AND conversation = :no ORDER BY upto_seq DESC, version DESC;

-- name: summary_ending
-- Select the newest summary that ends at a post.
SELECT version FROM summary WHERE tenant = :tenant AND conversation = :no AND upto_seq = :mark ORDER BY version DESC LIMIT 1;

-- name: summary_last
-- Select the highest version used.
SELECT coalesce(max(version), 0) FROM summary WHERE tenant = :tenant AND conversation = :no;

-- name: summary_insert
-- Insert a summary.
INSERT INTO summary (tenant, conversation, version, previous, upto_seq, upto_at, path_digest, markdown, memory_json, tainted, profile,
    made_by, tokens, created_at, corrected)
VALUES (:tenant, :no, :version, :previous, :upto_seq, :upto_at, :path_digest, :markdown, :memory_json, :tainted, :profile, :made_by,
    :tokens, :created_at, :corrected);

-- name: item_insert
-- Insert an item's form after a pass created, repeated or ended it.
INSERT INTO item (tenant, conversation, id, made_in, ended_in, category, text, subject, name, status, sources, trust, confidence, weight,
    valid_from, valid_to, supersedes, superseded_by, seq, speaker)
VALUES (:tenant, :no, :id, :made_in, :ended_in, :category, :text, :subject, :name, :status, :sources, :trust, :confidence, :weight,
    :valid_from, :valid_to, :supersedes, :superseded_by, :seq, :speaker) ON CONFLICT DO NOTHING;

-- name: items_of
-- Select all forms of a conversation's items, oldest first.
SELECT * FROM item WHERE tenant = :tenant AND conversation = :no ORDER BY made_in;

-- name: items_newest
-- Select the newest form of each item among those made in some summary versions, without erased ones, in the order of their posts.
SELECT i.* FROM item i WHERE i.tenant = :tenant AND i.conversation = :no AND i.text <> ''
    AND i.made_in IN (SELECT CAST(value AS INTEGER) FROM json_each(:versions))
    AND NOT EXISTS (SELECT 1 FROM item n WHERE n.tenant = :tenant AND n.conversation = :no AND n.id = i.id AND n.made_in > i.made_in
        AND n.made_in IN (SELECT CAST(value AS INTEGER) FROM json_each(:versions)))
ORDER BY i.seq, i.id;

-- name: compaction_done
-- Record a pass and the backlog after the new mark.
UPDATE conversation SET mark = :mark, backlog = :backlog, backlog_tokens = :backlog_tokens, compact_last_at = :now,
    compact_not_before = 0, compact_failures = 0, generation = generation + 1 WHERE no = :no;

-- name: compaction_postpone
-- Delay the next pass until a time; count failures.
UPDATE conversation SET compact_not_before = :until, compact_failures = CASE WHEN :failed THEN compact_failures + 1 ELSE 0 END
WHERE tenant = :tenant AND id = :id AND mark = :mark;

-- name: due
-- Select conversations with enough posts without a summary and no open round, most posts first, from a cursor on.
SELECT tenant, id, backlog, backlog_tokens, mark, compact_not_before, compact_last_at, compact_failures, updated_at,
    coalesce(json_extract(metadata, '$.mode'), ''), no,
    (SELECT CAST(json_extract(t.parameters, '$.compressionTrigger') AS REAL) FROM tuning t
        WHERE t.tenant = conversation.tenant AND t.conversation = no AND CAST(json_extract(t.parameters, '$.runs') AS INTEGER) > 0)
FROM conversation
WHERE backlog > 0 AND backlog >= :least AND open_round = 0 AND lease_until = 0 AND (id = :id OR (:id IS NULL AND utility = 0))
    AND (backlog < :backlog OR (backlog = :backlog AND no < :no)) ORDER BY backlog DESC, no DESC LIMIT :limit;

-- name: leases_held
-- Select all leases, earliest end first. `parallel` is the turn of a parallel turn's lease, 0 for a conversation's.
SELECT tenant, no, 0 AS parallel, fence, lease_until, lease_holder FROM conversation WHERE lease_until > 0
UNION ALL SELECT tenant, conversation, turn, 0, lease_until, lease_holder FROM parallel_turn ORDER BY lease_until;

-- name: turns_left
-- Select turns that wait for tool results in conversations unchanged since a time, or changed in the future.
SELECT t.tenant, t.conversation AS no, t.n FROM turn t JOIN conversation c ON c.tenant = t.tenant AND c.no = t.conversation
WHERE t.waiting > 0 AND c.lease_until = 0 AND (c.updated_at < :before OR c.updated_at > :after) LIMIT :limit;

-- name: idempotency_get
-- Select the result of an idempotency key.
SELECT i.digest, coalesce(c.id, '') AS id, i.turn, i.response FROM idempotency i LEFT JOIN conversation c ON c.no = i.conversation
WHERE i.tenant = :tenant AND i.key = :key;

-- name: idempotency_insert
-- Bind an idempotency key to its result, in the same transaction.
INSERT INTO idempotency (tenant, key, digest, conversation, turn, response, created_at)
VALUES (:tenant, :key, :digest, :no, :turn, :response, :now) ON CONFLICT DO NOTHING;

-- name: idempotency_rebind
-- Rebind an idempotency key for the same request if its step has no complete answer; `response` is that step.
UPDATE idempotency SET conversation = :no, turn = :turn, response = :response, created_at = :now
WHERE tenant = :tenant AND key = :key AND digest = :digest AND EXISTS (
    SELECT 1 FROM step s WHERE s.tenant = idempotency.tenant AND s.conversation = idempotency.conversation AND s.turn = idempotency.turn
    AND s.n = CAST(CAST(idempotency.response AS TEXT) AS INTEGER) AND s.state IN ('failed', 'interrupted'));

-- name: idempotency_retell
-- Replace the stored answer of an idempotency key.
UPDATE idempotency SET response = :response WHERE tenant = :tenant AND key = :key AND digest = :digest;

-- name: answers_drop
-- Delete the stored answers of requests that belong to no conversation.
DELETE FROM idempotency WHERE tenant = :tenant AND conversation = 0 AND turn = 0;

-- name: idempotency_forget
-- Delete idempotency keys older than a time, oldest first.
DELETE FROM idempotency WHERE (tenant, key) IN (
    SELECT tenant, key FROM idempotency WHERE created_at < :before ORDER BY created_at LIMIT :limit);

-- name: search_posts
-- For each word, select the newest posts that contain it in a range of rows, as a JSON array of row numbers.
SELECT value, (SELECT json_group_array(rowid) FROM (SELECT rowid FROM post_text
    WHERE post_text MATCH 'key : "' || rtrim(value, '*') || iif(value LIKE '%*', '"*', '"') AND rowid BETWEEN :first AND :last AND (:until IS NULL
    OR (SELECT p.created_at FROM post p WHERE p.tenant = :tenant AND p.conversation = post_text.rowid >> 32
        AND p.seq = post_text.rowid & 4294967295) <= :until)
    ORDER BY rowid DESC LIMIT :limit)) FROM json_each(:words);

-- name: search_posts_of_owner
-- For each word, select the newest posts that contain it in the conversations of a user and those that they joined, as a JSON array.
SELECT value, (SELECT json_group_array(rowid) FROM (SELECT rowid FROM post_text
    WHERE post_text MATCH 'scope : (' || :scope || ') AND key : "' || rtrim(value, '*') || iif(value LIKE '%*', '"*', '"') AND (:until IS NULL
    OR (SELECT p.created_at FROM post p WHERE p.tenant = :tenant AND p.conversation = post_text.rowid >> 32
        AND p.seq = post_text.rowid & 4294967295) <= :until)
    ORDER BY rowid DESC LIMIT :limit)) FROM json_each(:words);

-- name: search_posts_of_tenant
-- For each word, select the newest posts of a tenant that contain it, as a JSON array.
SELECT value, (SELECT json_group_array(rowid) FROM (SELECT rowid FROM post_text
    WHERE post_text MATCH 'scope : (' || :scope || ') AND key : "' || rtrim(value, '*') || iif(value LIKE '%*', '"*', '"') AND (:until IS NULL
    OR (SELECT p.created_at FROM post p WHERE p.tenant = :tenant AND p.conversation = post_text.rowid >> 32
        AND p.seq = post_text.rowid & 4294967295) <= :until)
    ORDER BY rowid DESC LIMIT :limit)) FROM json_each(:words);

-- name: search_counts
-- For each word, count the posts that contain it in a range of rows.
SELECT value, (SELECT count(*) FROM post_text
    WHERE post_text MATCH 'key : "' || rtrim(value, '*') || iif(value LIKE '%*', '"*', '"') AND rowid BETWEEN :first AND :last) FROM json_each(:words);

-- name: found_posts
-- Select posts for recall, and those near them of at most so many tokens, with their indexed words (from FTS5's content
-- table: one lookup), in any order.
SELECT p.seq, p.id, p.role, p.sender, p.message, p.parts, p.created_at, p.tokens, p.parent, p.body, t.c1
FROM (SELECT value, 1 AS direct FROM json_each(:seqs) UNION ALL SELECT value, 0 FROM json_each(:near)) j
CROSS JOIN post p ON p.tenant = :tenant AND p.conversation = :no AND p.seq = CAST(j.value AS INTEGER)
    AND (j.direct OR p.tokens <= :most)
LEFT JOIN post_text_content t ON t.id = :base + j.value;

-- name: post_text_scope
-- Set where full-text search finds a range of posts.
UPDATE post_text SET scope = :scope WHERE rowid BETWEEN :first AND :last;

-- name: delete_post_text
-- Delete the full-text rows of a conversation.
DELETE FROM post_text WHERE rowid BETWEEN :first AND :last;

-- name: delete_posts
-- Delete a conversation's posts.
DELETE FROM post WHERE tenant = :tenant AND conversation = :no;

-- name: delete_turns
-- Delete a conversation's turns.
DELETE FROM turn WHERE tenant = :tenant AND conversation = :no;

-- name: delete_parallel_turns
-- Delete the leases of a conversation's parallel turns.
DELETE FROM parallel_turn WHERE tenant = :tenant AND conversation = :no;

-- name: delete_steps
-- Delete a conversation's steps.
DELETE FROM step WHERE tenant = :tenant AND conversation = :no;

-- name: delete_summaries
-- Delete a conversation's summaries.
DELETE FROM summary WHERE tenant = :tenant AND conversation = :no;

-- name: delete_items
-- Delete a conversation's items.
DELETE FROM item WHERE tenant = :tenant AND conversation = :no;

-- name: delete_blobs
-- Delete texts that no other conversation references.
DELETE FROM blob WHERE tenant = :tenant
    AND digest IN (SELECT digest FROM blob_use WHERE tenant = :tenant AND conversation = :no)
    AND NOT EXISTS (SELECT 1 FROM blob_use u WHERE u.tenant = blob.tenant AND u.digest = blob.digest AND u.conversation <> :no);

-- name: delete_blob_uses
-- Delete a conversation's references to texts.
DELETE FROM blob_use WHERE tenant = :tenant AND conversation = :no;

-- name: delete_idempotency
-- Delete the idempotency keys of a conversation's turns.
DELETE FROM idempotency WHERE tenant = :tenant AND conversation = :no;

-- name: delete_conversation
-- Delete a conversation's row.
DELETE FROM conversation WHERE tenant = :tenant AND no = :no;

-- name: optimize_text
-- Merge the full-text index to remove deleted terms from its segments.
INSERT INTO post_text (post_text) VALUES ('optimize');

-- name: conversation_fence
-- Invalidate all earlier leases.
UPDATE conversation SET fence = :fence WHERE no = :no;

-- ---- Prompts: branches, versions, labels, events, observations -------------------------------------------

-- name: prompt_branches
-- Select a prompt's branches, or one of them, with the evidence of their active versions; first written first.
SELECT b.name, b.head, b.active, v.weight, v.observations, v.body, v.evidence,
    (SELECT json_group_array(number) FROM (SELECT r.number FROM prompt_version r
        WHERE r.tenant = b.tenant AND r.slug = b.slug AND r.branch = b.name AND r.rolled_back = 1 ORDER BY r.number)) AS rolled_back
FROM prompt_branch b CROSS JOIN prompt_version v ON v.tenant = b.tenant AND v.slug = b.slug AND v.branch = b.name AND v.number = b.active
WHERE b.tenant = :tenant AND b.slug = :slug AND (:branch IS NULL OR b.name = :branch) ORDER BY b.name <> 'main', b.name;

-- name: prompt_branch_get
-- Select the state of a branch.
SELECT head, active FROM prompt_branch WHERE tenant = :tenant AND slug = :slug AND name = :branch;

-- name: prompt_branch_put
-- Move a branch's head and active version, or create it.
INSERT INTO prompt_branch (tenant, slug, name, head, active) VALUES (:tenant, :slug, :branch, :head, :active)
ON CONFLICT (tenant, slug, name) DO UPDATE SET head = excluded.head, active = excluded.active;

-- name: prompt_names
-- Select a page of prompt names.
SELECT DISTINCT slug FROM prompt_branch WHERE tenant = :tenant AND slug > :after AND slug >= :first AND slug < :last ORDER BY slug LIMIT :limit;

-- name: prompt_labels
-- Select a prompt's labels by name.
SELECT name, branch, number, moved_by, moved_at FROM prompt_label WHERE tenant = :tenant AND slug = :slug ORDER BY name;

-- name: prompt_label_put
-- Point a label to a version.
INSERT INTO prompt_label (tenant, slug, name, branch, number, moved_by, moved_at) VALUES (:tenant, :slug, :name, :branch, :number, :moved_by, :moved_at)
ON CONFLICT (tenant, slug, name) DO UPDATE SET branch = excluded.branch, number = excluded.number, moved_by = excluded.moved_by,
    moved_at = excluded.moved_at;

-- name: prompt_version_get
-- Select one version.
SELECT body, rolled_back, weight, observations, evidence FROM prompt_version
WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number;

-- name: prompt_versions
-- Select versions of a prompt, of one branch or of all, oldest first.
SELECT body FROM prompt_version WHERE tenant = :tenant AND slug = :slug AND (:branch IS NULL OR branch = :branch) ORDER BY branch <> 'main', branch, number;

-- name: prompt_version_insert
-- Insert a version without observations.
INSERT INTO prompt_version (tenant, slug, branch, number, body, rolled_back, weight, observations, evidence)
VALUES (:tenant, :slug, :branch, :number, :body, 0, 0.5, 0, :evidence);

-- name: prompt_version_mark
-- Mark a version as rolled back, or clear the mark.
UPDATE prompt_version SET rolled_back = :rolled_back WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number;

-- name: prompt_version_learn
-- Update a version's weight and evidence.
UPDATE prompt_version SET weight = :weight, observations = observations + 1, evidence = :evidence
WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number;

-- name: prompt_version_relearn
-- Correct a version's weight and evidence.
UPDATE prompt_version SET weight = :weight, evidence = :evidence
WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number;

-- name: prompt_event_insert
-- Insert a prompt event.
INSERT INTO prompt_event (tenant, slug, body, branch, kind) VALUES (:tenant, :slug, :body, :branch, :kind);

-- name: prompt_events
-- Select the events of a prompt, newest first.
SELECT body FROM prompt_event WHERE tenant = :tenant AND slug = :slug ORDER BY no DESC LIMIT :limit;

-- name: prompt_events_on
-- Select the events of a branch without label events, newest first.
SELECT body FROM prompt_event WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND kind <> 'label' ORDER BY no DESC LIMIT :limit;

-- name: prompt_observation_insert
-- Insert an observation and its share.
INSERT INTO prompt_observation (tenant, slug, branch, number, user_id, counted, body)
VALUES (:tenant, :slug, :branch, :number, :user, :counted, :body) RETURNING no;

-- name: prompt_observation_get
-- Select one observation.
SELECT * FROM prompt_observation WHERE no = :no AND tenant = :tenant;

-- name: prompt_observation_revise
-- Correct an observation; readers of its branch must read again.
UPDATE prompt_observation SET body = :body, revised = 1 + (
    SELECT coalesce(max(r.revised), 0) FROM prompt_observation r
    WHERE r.tenant = :tenant AND r.slug = :slug AND r.branch = :branch AND r.revised > 0)
WHERE no = :no AND tenant = :tenant;

-- name: prompt_observations_later
-- Count the later observations of a version that counted.
SELECT count(*) FROM prompt_observation
WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number AND no > :no AND counted > 0;

-- name: prompt_observations_revised
-- Count the corrections of a branch's observations.
SELECT max(revised) FROM prompt_observation WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND revised > 0;

-- name: prompt_observed_lately
-- Select the users and shares of a version's recent observations, newest first.
SELECT user_id, counted FROM prompt_observation WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number
ORDER BY no DESC LIMIT :limit;

-- name: prompt_observed
-- Select prompts with observations after a mark.
SELECT slug, max(no) AS last FROM prompt_observation WHERE no > :after AND tenant = :tenant GROUP BY slug;

-- name: prompt_tenants
-- Select tenants with observations, by index steps.
WITH RECURSIVE tenants (tenant) AS (
    SELECT min(tenant) FROM prompt_observation
    UNION ALL SELECT (SELECT min(o.tenant) FROM prompt_observation o WHERE o.tenant > t.tenant) FROM tenants t WHERE t.tenant IS NOT NULL
)
SELECT tenant FROM tenants WHERE tenant IS NOT NULL;

-- name: prompt_observations_behind
-- Select observations of two versions after a mark, newest first.
SELECT no, body FROM prompt_observation WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number IN (:one, :other) AND no > :after
ORDER BY no DESC LIMIT :limit;

-- name: prompt_observations
-- Select observations of a prompt, of one branch or of all, newest first.
SELECT body FROM prompt_observation WHERE tenant = :tenant AND slug = :slug AND (:branch IS NULL OR branch = :branch) ORDER BY no DESC LIMIT :limit;

-- name: audit_last
-- Select the last record of a tenant's chain. In a damaged SQLite file, a text is greater than every integer.
SELECT seq, hash FROM audit_record WHERE tenant = :tenant AND seq <= 9223372036854775807 ORDER BY seq DESC LIMIT 1;

-- name: audit_insert
-- Append a record to the chain; personal texts are stored beside it.
INSERT INTO audit_record (tenant, seq, hash, body, texts) VALUES (:tenant, :seq, :hash, :body, :texts);

-- name: audit_records
-- Select a page of a chain's records, oldest first.
SELECT seq, hash, body, texts FROM audit_record WHERE tenant = :tenant AND seq > :after AND seq <= 9223372036854775807
ORDER BY seq LIMIT :limit;

-- name: audit_heads
-- Select the tenants with audit records or seals: the last record, the newest checkpoint, and the unrecorded changes.
WITH RECURSIVE tenants (tenant) AS (SELECT min(tenant) FROM audit_record
    UNION ALL SELECT (SELECT min(a.tenant) FROM audit_record a WHERE a.tenant > t.tenant) FROM tenants t
        WHERE t.tenant IS NOT NULL)
SELECT n.tenant, coalesce((SELECT max(a.seq) FROM audit_record a WHERE a.tenant = n.tenant), 0) AS last,
    coalesce((SELECT max(c.size) FROM audit_checkpoint c WHERE c.tenant = n.tenant), 0) AS signed,
    coalesce((SELECT s.changes - s.recorded FROM seal_total s WHERE s.tenant = n.tenant), 0) AS unrecorded
FROM (SELECT tenant FROM tenants WHERE tenant IS NOT NULL UNION SELECT tenant FROM seal_total) n;

-- name: audit_checkpoints
-- Select the signed checkpoints of a chain, by size.
SELECT size, body FROM audit_checkpoint WHERE tenant = :tenant ORDER BY size;

-- name: audit_checkpoint_put
-- Store a checkpoint; the first of a size is kept.
INSERT INTO audit_checkpoint (tenant, size, body) VALUES (:tenant, :size, :body) ON CONFLICT DO NOTHING;

-- ---- API keys and organizations --------------------------------------------------------------------------

-- name: key_insert
-- Store an API key.
INSERT INTO api_key (tenant, id, digest, role, user_id, organizations, name, created_at, expires_at, revoked_at)
VALUES (:tenant, :id, :digest, :role, :user, :organizations, :name, :created_at, :expires_at, NULL) ON CONFLICT DO NOTHING;

-- name: key_any
-- Check whether any tenant has an API key.
SELECT 1 AS one FROM api_key LIMIT 1;

-- name: key_by_id
-- Select an API key of any tenant by id.
SELECT *, user_id AS "user" FROM api_key WHERE id = :id;

-- name: keys_of
-- Select the API keys of a tenant, oldest first.
SELECT *, user_id AS "user" FROM api_key WHERE tenant = :tenant ORDER BY created_at, id;

-- name: key_revoke
-- Revoke an API key.
UPDATE api_key SET revoked_at = :now WHERE tenant = :tenant AND id = :id AND revoked_at IS NULL;

-- name: key_prune
-- Delete the expired API keys of a name.
DELETE FROM api_key WHERE tenant = :tenant AND name = :name AND expires_at <= :now;

-- name: key_expire
-- Let a valid API key expire.
UPDATE api_key SET expires_at = CASE WHEN expires_at < :until THEN expires_at ELSE :until END
WHERE tenant = :tenant AND id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now);

-- name: key_spend
-- Add tokens to those that a key has spent on a day.
UPDATE api_key SET tokens_spent = CASE WHEN spent_on < :day THEN :tokens ELSE tokens_spent + :tokens END,
    spent_on = CASE WHEN spent_on < :day THEN :day ELSE spent_on END
WHERE tenant = :tenant AND id = :id;

-- name: key_spent
-- Select the tokens that a key has spent on a day.
SELECT tokens_spent FROM api_key WHERE tenant = :tenant AND id = :id AND spent_on = :day;

-- name: outsiders
-- Check whether one of these users has own keys, but none of the organization.
SELECT 1 FROM json_each(:users) u
WHERE EXISTS (SELECT 1 FROM api_key k WHERE k.tenant = :tenant AND k.user_id = u.value AND k.revoked_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM api_key k JOIN json_each(k.organizations) o ON o.value = :organization
        WHERE k.tenant = :tenant AND k.user_id = u.value AND k.revoked_at IS NULL) LIMIT 1;

-- name: organization_get
-- Select an organization's settings.
SELECT settings FROM organization WHERE tenant = :tenant AND id = :id;

-- name: organization_put
-- Store an organization's settings.
INSERT INTO organization (tenant, id, settings, updated_at) VALUES (:tenant, :id, :settings, :now)
ON CONFLICT (tenant, id) DO UPDATE SET settings = excluded.settings, updated_at = excluded.updated_at;

-- ---- Long-term memories and deliveries -------------------------------------------------------------------

-- name: memory_find
-- Select the best full-text matches among memories that are valid, or were at a time.
SELECT t.rowid FROM memory_text t CROSS JOIN memory m ON m.no = t.rowid WHERE memory_text MATCH :match
    AND iif(:at IS NULL, m.valid_to IS NULL, m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at))
ORDER BY bm25(memory_text, 0.0, 1.0) LIMIT :limit;

-- name: memory_keys
-- Select the indexed words of a place's valid memories.
SELECT m.no, t.c1 FROM memory m INDEXED BY memory_standing CROSS JOIN memory_text_content t ON t.id = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.valid_to IS NULL LIMIT :limit;

-- name: memory_keys_at
-- Select the indexed words of a place's memories that were valid at a time.
SELECT m.no, t.c1 FROM memory m CROSS JOIN memory_text_content t ON t.id = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at)
LIMIT :limit;

-- name: memories_by_said
-- Select memories of a place by text number.
SELECT m.* FROM json_each(:said) j CROSS JOIN memory m
    ON m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.said = CAST(j.value AS INTEGER);

-- name: memory_counts
-- Count the index rows of a place with each of some words. PostgreSQL also selects those of a rare word.
SELECT value, (SELECT count(*) FROM memory_text WHERE memory_text MATCH 'scope : "' || :token || '" AND key : "' || rtrim(value, '*') || iif(value LIKE '%*', '"*', '"')), NULL
FROM json_each(:words);

-- name: memory_held
-- Count the valid memories of a place.
SELECT count(*) FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND valid_to IS NULL;

-- name: memory_standing
-- Select the standing memories of a place, highest confidence first.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND valid_to IS NULL AND standing = 1
ORDER BY confidence DESC, no DESC LIMIT :limit;

-- name: memory_standing_count
-- Count the standing memories of a place.
SELECT count(*) FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND valid_to IS NULL AND standing = 1;

-- name: memory_foremost
-- Select the valid memories of a place, highest confidence first.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND valid_to IS NULL
ORDER BY confidence DESC, no DESC LIMIT :limit;

-- name: memory_of_place
-- Select all memories of a place, in order of creation.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner ORDER BY no;

-- name: memories_by_no
-- Select memories by number.
SELECT m.* FROM json_each(:nos) j CROSS JOIN memory m ON m.no = CAST(j.value AS INTEGER) WHERE m.tenant = :tenant;

-- name: memory_corrected
-- Select manually corrected memories of a place.
SELECT DISTINCT m.no FROM memory m JOIN memory_source s ON s.tenant = m.tenant AND s.memory = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.written = 1;

-- name: memories_named
-- Select memories of a place by id.
SELECT no FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND id IN (SELECT value FROM json_each(:ids));

-- name: memory_words
-- Select the texts of a place's memories, oldest first, and whether each has ended.
SELECT no, text, subject, valid_to IS NOT NULL FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner ORDER BY no;

-- name: memory_count
-- Count the memories of a place.
SELECT count(*) FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: memory_by_id
-- Select the memories with an id, of any place.
SELECT * FROM memory WHERE tenant = :tenant AND id = :id ORDER BY no;

-- name: memory_known
-- Select which ids are those of memories, also ended ones.
SELECT DISTINCT id FROM memory WHERE tenant = :tenant AND id IN (SELECT value FROM json_each(:ids));

-- name: memory_page
-- Select a page of a place's memories, in order of creation.
SELECT * FROM memory INDEXED BY memory_order WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND no > :after
    AND (:ended OR valid_to IS NULL) AND (:category IS NULL OR category = :category) ORDER BY no LIMIT :limit;

-- name: memory_page_of_all
-- Select a page of all memories, in order of creation.
SELECT * FROM memory NOT INDEXED WHERE tenant = :tenant AND no > :after
    AND (:ended OR valid_to IS NULL) AND (:category IS NULL OR category = :category) ORDER BY no LIMIT :limit;

-- name: memory_idle
-- Select unchanged memories of some categories since a time, of a tenant or of all.
SELECT * FROM memory WHERE (:tenant IS NULL OR tenant = :tenant) AND valid_to IS NULL AND used_at < :before AND decayed_at < :before AND category IN (SELECT value FROM json_each(:categories))
ORDER BY used_at LIMIT :limit;

-- name: memory_insert
-- Insert a memory.
INSERT INTO memory (tenant, kind, owner, id, category, name, text, subject, status, trust, confidence, weight, uses, used_at, decayed_at,
    valid_from, valid_to, supersedes, ended_by, repeated_at, written, said, created_at, updated_at,
    standing)
VALUES (:tenant, :kind, :owner, :id, :category, :name, :text, :subject, :status, :trust, :confidence, :weight, :uses, :used_at, :decayed_at,
    :valid_from, :valid_to, :supersedes, :ended_by, :repeated_at, :written, :said, :created_at, :updated_at,
    :standing) RETURNING *;

-- name: memory_update
-- Update a memory.
UPDATE memory SET id = :id, category = :category, name = :name, text = :text, subject = :subject, status = :status, trust = :trust,
    confidence = :confidence, weight = :weight, uses = :uses, used_at = :used_at, decayed_at = :decayed_at, valid_from = :valid_from,
    valid_to = :valid_to, supersedes = :supersedes, ended_by = :ended_by, repeated_at = :repeated_at, written = :written, said = :said,
    updated_at = :updated_at, standing = :standing WHERE no = :no RETURNING *;

-- name: memory_used
-- Count a use of memories.
UPDATE memory SET uses = uses + 1, used_at = max(used_at, :now), confidence = min(1.0, round(confidence + :by, 6))
WHERE tenant = :tenant AND id IN (SELECT value FROM json_each(:ids)) AND valid_to IS NULL RETURNING *;

-- name: memory_delete
-- Delete a memory.
DELETE FROM memory WHERE no = :no RETURNING *;

-- name: memory_text_insert
-- Add a memory to the full-text index.
INSERT INTO memory_text (rowid, scope, key) VALUES (:no, :token, :key);

-- name: memory_text_delete
-- Delete a memory from the full-text index.
DELETE FROM memory_text WHERE rowid = :no;

-- name: memory_sources
-- Select the sources of memories; a deleted conversation has no id.
SELECT s.memory, s.post, coalesce(c.id, '') AS id
FROM json_each(:nos) j CROSS JOIN memory_source s ON s.tenant = :tenant AND s.memory = CAST(j.value AS INTEGER) LEFT JOIN conversation c ON c.no = s.conversation
ORDER BY s.conversation, s.post;

-- name: memory_source_insert
-- Insert a source of a memory.
INSERT INTO memory_source (tenant, memory, conversation, post) VALUES (:tenant, :no, :conversation, :post) ON CONFLICT DO NOTHING RETURNING *;

-- name: memory_sources_delete
-- Delete the sources of a memory.
DELETE FROM memory_source WHERE tenant = :tenant AND memory = :no RETURNING *;

-- name: place_generation
-- Select the change counter of a place.
SELECT generation FROM place WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: place_changes
-- Select the number of places and their changes.
SELECT count(*), coalesce(sum(generation), 0) FROM place WHERE tenant = :tenant;

-- name: place_generations
-- Select the change counter of each place.
SELECT kind, owner, generation FROM place WHERE tenant = :tenant;

-- name: places_with
-- Select a user's places: their own, and those of each persona about them.
SELECT kind, owner FROM place WHERE tenant = :tenant AND of_user = :user ORDER BY kind, owner;

-- name: place_changed
-- Increment a place's change counter. A place created again after an erasure reuses no generation and no text number.
INSERT INTO place (tenant, kind, owner, of_user, generation, said, said_at)
SELECT :tenant, :kind, :owner, CASE :kind WHEN 'user' THEN :owner WHEN 'persona' THEN substr(:owner, instr(:owner, char(31)) + 1) END,
    1 + begun, begun, 0 FROM (
    SELECT 1000000 * coalesce(max(epoch), 0) AS begun FROM epoch WHERE tenant = :tenant AND kind = '') WHERE true
ON CONFLICT (tenant, kind, owner) DO UPDATE SET generation = place.generation + 1 RETURNING said;

-- name: place_said
-- Update the number of a place's newest text.
UPDATE place SET said = :said, said_at = :now WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: delivery_wanted
-- Mark a conversation as due for delivery.
INSERT INTO delivery (tenant, conversation, seq, version, due) VALUES (:tenant, :no, 0, 0, 1)
ON CONFLICT (tenant, conversation) DO UPDATE SET due = 1;

-- name: delivery_again
-- Mark a conversation as due again after a pass, if it delivers.
UPDATE delivery SET due = 1 WHERE tenant = :tenant AND conversation = :no;

-- name: deliveries_due
-- Select conversations that are due for delivery and have no running turn, from tenants in turn.
SELECT c.tenant, c.id FROM delivery d JOIN conversation c ON c.no = d.conversation WHERE d.due = 1 AND c.lease_until = 0
ORDER BY row_number() OVER (PARTITION BY c.tenant ORDER BY c.no), c.no LIMIT :limit;

-- name: delivery_get
-- Select the delivery state of a conversation.
SELECT seq, version, due FROM delivery WHERE tenant = :tenant AND conversation = :no;

-- name: delivery_done
-- Update the delivery state of a conversation.
UPDATE delivery SET seq = :seq, version = :version, due = :due
WHERE tenant = :tenant AND conversation = :no AND seq = :done_seq AND version = :done_version;

-- name: posts_cited
-- Select the sender and round of posts.
SELECT id, seq, role, sender, round FROM post WHERE tenant = :tenant AND conversation = :no AND id IN (SELECT value FROM json_each(:ids));

-- name: turns_terms
-- Select the sharing terms of a round's turns.
SELECT json_extract(metadata, '$.' || :kept) AS policy, json_extract(metadata, '$.' || :shared) AS shared,
    json_extract(metadata, '$.' || :persona) AS persona, CAST(json_extract(metadata, '$.' || :brought) AS INTEGER) AS brought,
    json_extract(metadata, '$.' || :by) AS by
FROM turn WHERE tenant = :tenant AND conversation = :no AND round = :round;

-- name: turn_round_after
-- Select the first later round that a turn answered.
SELECT round FROM turn WHERE tenant = :tenant AND conversation = :no AND round > :round ORDER BY round LIMIT 1;

-- name: turn_round_before
-- Select the last earlier round that a turn answered.
SELECT round FROM turn WHERE tenant = :tenant AND conversation = :no AND round < :round ORDER BY round DESC LIMIT 1;

-- name: sources_in
-- Select a conversation's memories, except manual ones, with the position of each source post.
SELECT m.*, p.seq, p.created_at AS said_when FROM memory_source s JOIN memory m ON m.tenant = s.tenant AND m.no = s.memory
JOIN post p ON p.tenant = s.tenant AND p.conversation = s.conversation AND p.id = s.post
WHERE s.tenant = :tenant AND s.conversation = :no AND m.written = 0 ORDER BY m.no, p.seq;

-- name: source_times
-- Select the times of a memory's source posts, by conversation and post.
SELECT s.conversation, s.post, p.seq, p.created_at FROM memory_source s
LEFT JOIN post p ON p.tenant = s.tenant AND p.conversation = s.conversation AND p.id = s.post
WHERE s.tenant = :tenant AND s.memory = :memory;

-- name: memory_at
-- Select a memory by number.
SELECT * FROM memory WHERE no = :no AND tenant = :tenant;

-- name: memory_rests
-- Update a memory after sources were removed.
UPDATE memory SET confidence = :confidence, valid_from = :valid_from, repeated_at = :repeated_at, updated_at = :now WHERE no = :no RETURNING *;

-- name: memory_holds_on
-- Extend the validity of memories that a deleted memory had ended.
UPDATE memory SET valid_to = :valid_to, ended_by = :next, updated_at = :now
WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND ended_by = :id RETURNING *;

-- name: memory_follows
-- Link the successor of a deleted memory to its predecessor.
UPDATE memory SET supersedes = :before, updated_at = :now WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND supersedes = :id RETURNING *;

-- name: delivery_back
-- Reset the delivery mark to the fork of the head's path.
UPDATE delivery SET seq = :seq, version = :version, due = 1
WHERE tenant = :tenant AND conversation = :no AND seq = :done_seq AND version = :done_version;

-- name: outbox_insert
-- Insert an outbox entry for a sink.
INSERT INTO outbox (tenant, conversation, version, sink) VALUES (:tenant, :no, :version, :sink);

-- name: outbox_of
-- Select outbox entries of some sinks, oldest first.
SELECT o.no, o.sink, o.tenant, c.id, o.version FROM outbox o JOIN conversation c ON c.no = o.conversation
WHERE o.sink IN (SELECT value FROM json_each(:sinks)) ORDER BY o.no LIMIT :limit;

-- name: outbox_delete
-- Delete an outbox entry.
DELETE FROM outbox WHERE no = :no;

-- name: delete_outbox
-- Delete a conversation's outbox entries.
DELETE FROM outbox WHERE tenant = :tenant AND conversation = :no;

-- name: delete_delivery
-- Delete the delivery state of a conversation.
DELETE FROM delivery WHERE tenant = :tenant AND conversation = :no;

-- ---- Optimizer: tunings and snapshots --------------------------------------------------------------------

-- Optimizer parameters (tunings), their runs, and the counts of the analyzer.

-- name: tuning_get
-- Select a conversation's tuning.
SELECT parameters AS tuning, seen_seq, updated_at FROM tuning WHERE tenant = :tenant AND conversation = :no;

-- name: tuning_put
-- Store a conversation's tuning, if it is unchanged since the run started.
INSERT INTO tuning (tenant, conversation, parameters, seen_seq, updated_at) VALUES (:tenant, :no, :tuning, :seen_seq, :now)
ON CONFLICT (tenant, conversation) DO UPDATE SET parameters = excluded.parameters, seen_seq = excluded.seen_seq,
    updated_at = excluded.updated_at WHERE tuning.updated_at = :before RETURNING conversation;

-- name: tuning_changed
-- Select long conversations of all tenants that changed since their last run, which was before a time.
WITH RECURSIVE tenants (id) AS (SELECT min(tenant) FROM conversation
    UNION ALL SELECT (SELECT min(tenant) FROM conversation WHERE tenant > tenants.id) FROM tenants WHERE tenants.id IS NOT NULL)
SELECT c.tenant, c.id FROM tenants JOIN conversation c ON c.tenant = tenants.id AND c.updated_at >= :since
LEFT JOIN tuning t ON t.tenant = c.tenant AND t.conversation = c.no
WHERE c.last_seq >= :least AND c.last_seq > coalesce(t.seen_seq, 0)
    AND coalesce(t.updated_at, 0) <= :before AND (:tenant IS NULL OR c.tenant = :tenant)
    AND (:user IS NULL OR (c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user))
ORDER BY row_number() OVER (PARTITION BY c.tenant ORDER BY c.no), c.no LIMIT :limit;

-- name: tuning_totals
-- Select the totals of a tenant's runs, of one conversation or of those of a user.
SELECT coalesce(sum(CAST(json_extract(t.parameters, '$.runs') AS INTEGER)), 0) AS runs, coalesce(sum(CAST(json_extract(t.parameters, '$.tokensSaved') AS INTEGER)), 0) AS saved
FROM tuning t JOIN conversation c ON c.tenant = t.tenant AND c.no = t.conversation
WHERE t.tenant = :tenant AND (:id IS NULL OR c.id = :id)
    AND (:user IS NULL OR (c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user));

-- name: tuning_latest
-- Select the parameters of the newest run, of one conversation or of those of a user.
SELECT t.parameters FROM tuning t JOIN conversation c ON c.tenant = t.tenant AND c.no = t.conversation
WHERE t.tenant = :tenant AND (:id IS NULL OR c.id = :id) AND CAST(json_extract(t.parameters, '$.runs') AS INTEGER) > 0
    AND (:user IS NULL OR (c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user))
ORDER BY t.updated_at DESC LIMIT 1;

-- name: optimization_insert
-- Insert a run's snapshot.
INSERT INTO optimization (tenant, conversation, body) VALUES (:tenant, :no, :body);

-- name: optimization_prune
-- Delete all but the newest snapshots of a conversation.
DELETE FROM optimization WHERE tenant = :tenant AND conversation = :no AND no <= (
    SELECT no FROM optimization WHERE tenant = :tenant AND conversation = :no ORDER BY no DESC LIMIT 1 OFFSET :most);

-- name: optimizations
-- Select snapshots, newest first, of one conversation or of those of a user.
SELECT o.body FROM optimization o JOIN conversation c ON c.tenant = o.tenant AND c.no = o.conversation
WHERE o.tenant = :tenant AND (:id IS NULL OR c.id = :id)
    AND (:user IS NULL OR (c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user))
ORDER BY o.no DESC LIMIT :limit;

-- name: tally_posts
-- Count posts, and posts covered by a summary.
SELECT coalesce(sum(c.last_seq), 0) AS posts, coalesce(sum(CASE WHEN c.mark > 0 THEN p.path_count - c.backlog ELSE 0 END), 0) AS compressed
FROM conversation c LEFT JOIN post p ON p.tenant = c.tenant AND p.conversation = c.no AND p.seq = c.head
WHERE c.tenant = :tenant AND (:id IS NULL OR c.id = :id)
    AND (:user IS NULL OR (c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user));

-- name: tally_items
-- Count valid items of all branches.
SELECT count(*) AS items FROM item i JOIN conversation c ON c.tenant = i.tenant AND c.no = i.conversation
WHERE i.tenant = :tenant AND (:id IS NULL OR c.id = :id) AND i.ended_in IS NULL AND NOT EXISTS (
    SELECT 1 FROM item n WHERE n.tenant = i.tenant AND n.conversation = i.conversation AND n.id = i.id AND n.made_in > i.made_in)
    AND (:user IS NULL OR (c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user));

-- name: tally_promoted
-- Select tunings with promoted posts, and up to where summaries cover their conversations.
SELECT t.parameters, c.mark FROM tuning t JOIN conversation c ON c.tenant = t.tenant AND c.no = t.conversation
WHERE t.tenant = :tenant AND (:id IS NULL OR c.id = :id) AND t.parameters LIKE '%"promoted":{"%'
    AND (:user IS NULL OR (c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user));

-- name: tally_memories
-- Count valid long-term memories: of a user and their personas, or of a tenant with some organizations or all.
SELECT count(*) AS memories FROM memory WHERE tenant = :tenant AND valid_to IS NULL
    AND (:user IS NULL OR (kind = 'user' AND owner = :user) OR (kind = 'persona' AND substr(owner, instr(owner, char(31)) + 1) = :user))
    AND (kind <> 'organization' OR :organizations IS NULL OR owner IN (SELECT value FROM json_each(:organizations)));

-- name: work_add
-- Add the usage of a background model call to a conversation's totals.
INSERT INTO work (tenant, conversation, task, model, currency, calls, input_tokens, output_tokens, cached_tokens, cost)
VALUES (:tenant, :no, :task, :model, :currency, 1, :input_tokens, :output_tokens, :cached_tokens, :cost)
ON CONFLICT (tenant, conversation, task, model, currency) DO UPDATE SET calls = work.calls + 1,
    input_tokens = work.input_tokens + excluded.input_tokens, output_tokens = work.output_tokens + excluded.output_tokens,
    cached_tokens = work.cached_tokens + excluded.cached_tokens, cost = work.cost + excluded.cost;

-- name: work_of
-- Select the usage of background model calls for a conversation, by task and model.
SELECT task, model, currency, calls, input_tokens, output_tokens, cached_tokens, cost FROM work
WHERE tenant = :tenant AND conversation = :no ORDER BY task, model, currency;

-- name: work_totals
-- Select the usage of background model calls by task and model, for one conversation or those of a user.
SELECT w.task, w.model, w.currency, CAST(sum(w.calls) AS BIGINT) AS calls, CAST(sum(w.input_tokens) AS BIGINT) AS input_tokens,
    CAST(sum(w.output_tokens) AS BIGINT) AS output_tokens, CAST(sum(w.cached_tokens) AS BIGINT) AS cached_tokens, sum(w.cost) AS cost
FROM work w JOIN conversation c ON c.tenant = w.tenant AND c.no = w.conversation
WHERE w.tenant = :tenant AND (:id IS NULL OR c.id = :id) AND (:user IS NULL OR (c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user))
GROUP BY w.task, w.model, w.currency ORDER BY w.task, w.model, w.currency;

-- name: delete_work
-- Delete the usage of a conversation's background model calls.
DELETE FROM work WHERE tenant = :tenant AND conversation = :no;

-- name: delete_tuning
-- Delete a conversation's tuning.
DELETE FROM tuning WHERE tenant = :tenant AND conversation = :no;

-- name: delete_optimizations
-- Delete a conversation's snapshots.
DELETE FROM optimization WHERE tenant = :tenant AND conversation = :no;

-- ---- Vectors ---------------------------------------------------------------------------------------------

-- Statements about vectors. A scope is `c` and a conversation's number, or `p`, a place's kind, char(31) and its owner.

-- name: embedded_get
-- Select the embedding progress of a model in a scope.
SELECT upto, vectors, began FROM embedded WHERE tenant = :tenant AND scope = :scope AND model = :model;

-- name: embedded_put
-- Update the embedding progress of a model in a scope.
INSERT INTO embedded (tenant, scope, model, owner, upto, vectors, began) VALUES (:tenant, :scope, :model, :owner, :upto, :vectors, :now)
ON CONFLICT (tenant, scope, model) DO UPDATE SET upto = excluded.upto, vectors = embedded.vectors + excluded.vectors;

-- name: embedded_of_owner
-- Select scopes of one owner's conversations with vectors of a model, newest first.
SELECT scope FROM embedded WHERE tenant = :tenant AND owner = :owner AND model = :model ORDER BY began DESC LIMIT :limit;

-- name: embedded_counts
-- Count the posts that a model has embedded, and their vectors.
SELECT coalesce(sum(upto), 0), coalesce(sum(vectors), 0) FROM embedded WHERE model = :model AND substr(scope, 1, 1) = 'c';

-- name: embedded_due
-- Select conversations changed since a time with posts after the last embedded one, by each tenant's index. No utility calls.
WITH RECURSIVE tenants (tenant) AS (
    SELECT min(tenant) FROM conversation
    UNION ALL SELECT (SELECT min(c.tenant) FROM conversation c WHERE c.tenant > t.tenant) FROM tenants t WHERE t.tenant IS NOT NULL
)
SELECT c.tenant, c.id AS conversation, c.no, coalesce(e.upto, 0) AS upto, c.last_seq FROM tenants t
CROSS JOIN conversation c INDEXED BY conversation_recent ON c.tenant = t.tenant AND c.updated_at >= :since
LEFT JOIN embedded e ON e.tenant = c.tenant AND e.scope = 'c' || c.no AND e.model = :model
WHERE c.last_seq > coalesce(e.upto, 0) AND c.utility = 0
ORDER BY row_number() OVER (PARTITION BY c.tenant ORDER BY c.updated_at DESC, c.no DESC), c.updated_at DESC, c.no DESC LIMIT :limit;

-- name: places_due
-- Select places changed since a time with texts after the last embedded one: of the newest 10,000, from tenants in turn.
SELECT tenant, kind, owner, upto, said FROM (
    SELECT p.tenant, p.kind, p.owner, coalesce(e.upto, 0) AS upto, p.said, p.said_at FROM place p INDEXED BY place_said
    LEFT JOIN embedded e ON e.tenant = p.tenant AND e.scope = 'p' || p.kind || char(31) || p.owner AND e.model = :model
    WHERE p.said_at >= :since AND p.said > coalesce(e.upto, 0) ORDER BY p.said_at DESC LIMIT 10000) AS due
ORDER BY row_number() OVER (PARTITION BY tenant ORDER BY said_at DESC), said_at DESC LIMIT :limit;

-- name: place_last_said
-- Select the number of a place's newest text.
SELECT said FROM place WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: memories_said
-- Select current and former texts of a place's memories after a text number, in order.
SELECT said, name, text FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND said > :after ORDER BY said LIMIT :limit;

-- name: memories_said_still
-- Select the texts of a stretch that a place still has.
SELECT said FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND said > :after AND said <= :upto;

-- name: embedded_models
-- Select the models with embeddings of a scope.
SELECT model FROM embedded WHERE tenant = :tenant AND scope = :scope;

-- name: embedded_less
-- Reduce the vector count of a scope.
UPDATE embedded SET vectors = vectors - :gone WHERE tenant = :tenant AND scope = :scope AND model = :model;

-- name: vector_delete
-- Delete the vectors of one text.
DELETE FROM vector WHERE tenant = :tenant AND scope = :scope AND model = :model AND ref = :ref;

-- name: embedded_of_user
-- Delete the embedding progress of a user's places.
DELETE FROM embedded WHERE tenant = :tenant AND scope IN (
    SELECT 'p' || kind || char(31) || owner FROM place WHERE tenant = :tenant AND ((kind = 'user' AND owner = :user)
        OR (kind = 'persona' AND substr(owner, instr(owner, char(31)) + 1) = :user)));

-- name: vector_insert
-- Insert a vector.
INSERT INTO vector (tenant, scope, model, ref, part, body) VALUES (:tenant, :scope, :model, :ref, :part, :body);

-- name: vector_behind
-- Select the vectors of a scope after a post, ascending.
SELECT ref, part, body FROM vector WHERE tenant = :tenant AND scope = :scope AND model = :model AND ref > :after ORDER BY ref, part;

-- name: delete_vectors
-- Delete a conversation's vectors, of every model.
DELETE FROM vector WHERE tenant = :tenant AND scope = 'c' || :no;

-- name: delete_embedded
-- Delete the embedding progress of a conversation.
DELETE FROM embedded WHERE tenant = :tenant AND scope = 'c' || :no;

-- ---- Erasure ---------------------------------------------------------------------------------------------

-- name: epoch_get
-- Select the erasure epoch of an owner; the tenant's own epoch counts all erasures.
SELECT epoch FROM epoch WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: epoch_raise
-- Increment an owner's erasure epoch, which invalidates earlier reads.
INSERT INTO epoch (tenant, kind, owner, epoch) VALUES (:tenant, :kind, :owner, 1)
ON CONFLICT (tenant, kind, owner) DO UPDATE SET epoch = epoch.epoch + 1 RETURNING epoch;

-- name: conversations_of_user
-- Select the conversations that a user owns.
SELECT *, user_id AS "user" FROM conversation WHERE tenant = :tenant AND user_id = :user ORDER BY no;

-- name: conversations_heard
-- Select others' conversations in which this name spoke or takes part, and those with too many speakers to know.
SELECT *, user_id AS "user" FROM conversation WHERE tenant = :tenant AND user_id IS NOT :user AND (
    EXISTS (SELECT 1 FROM json_each(participants) WHERE value = :user) OR EXISTS (SELECT 1 FROM json_each(speakers) WHERE value = :user)
    OR json_array_length(speakers) >= :many) ORDER BY no;

-- name: post_sent_by
-- Check whether a user has posts in a conversation.
SELECT 1 FROM post WHERE tenant = :tenant AND conversation = :no AND sender = :user LIMIT 1;

-- name: posts_left
-- Count the posts of a conversation that are not erased.
SELECT count(*) FROM post WHERE tenant = :tenant AND conversation = :no AND state <> 'erased';

-- name: post_body
-- Select the digest of a post's body that is stored apart.
SELECT body FROM post WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: post_erase
-- Empty the text of a post; the post stays in its tree.
UPDATE post SET sender = :sender, recipient = '', role = :role, state = 'erased', message = :message, small = NULL, parts = NULL,
    wire = NULL, body = NULL, tokens = :tokens, small_tokens = :tokens, digest = :digest
WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: post_recipient
-- Replace a recipient by a placeholder.
UPDATE post SET recipient = :nobody WHERE tenant = :tenant AND conversation = :no AND recipient = :user;

-- name: post_sum
-- Update the running sum and the chained digest at a post.
UPDATE post SET path_tokens = :path_tokens, chain = :chain WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: post_text_delete
-- Delete a post from the full-text index.
DELETE FROM post_text WHERE rowid = :id;

-- name: conversation_erased
-- Reset a conversation after an erasure: no derived data, and open turns are invalidated.
UPDATE conversation SET participants = :participants, company = :company, speakers = :speakers, mark = :mark,
    backlog = :backlog, backlog_tokens = :backlog_tokens, compact_not_before = 0, generation = generation + 1,
    opening = NULL, ending = NULL WHERE no = :no;

-- name: turns_told
-- Select each turn's metadata.
SELECT n, metadata FROM turn WHERE tenant = :tenant AND conversation = :no;

-- name: turn_metadata
-- Replace a turn's metadata.
UPDATE turn SET metadata = :metadata WHERE tenant = :tenant AND conversation = :no AND n = :n;

-- name: turns_of_rounds
-- Select the turns that answered some rounds.
SELECT n FROM turn WHERE tenant = :tenant AND conversation = :no AND round IN (SELECT CAST(value AS INTEGER) FROM json_each(:rounds));

-- name: steps_blank
-- Clear the partial answers and errors of a conversation's steps.
UPDATE step SET partial = NULL, error = '' WHERE tenant = :tenant AND conversation = :no;

-- name: manifests_of
-- Select the manifests of a conversation's steps, each with the round that its turn answered.
SELECT step.manifest, turn.round FROM step JOIN turn ON turn.tenant = step.tenant
 AND turn.conversation = step.conversation AND turn.n = step.turn
WHERE step.tenant = :tenant AND step.conversation = :no;

-- name: text_used
-- Check whether a post of a conversation has its body in a text.
SELECT 1 FROM post WHERE tenant = :tenant AND conversation = :no AND body = :digest LIMIT 1;

-- name: text_unuse
-- Delete a conversation's reference to a text.
DELETE FROM blob_use WHERE tenant = :tenant AND conversation = :no AND digest = :digest;

-- name: text_drop
-- Delete a text without references.
DELETE FROM blob WHERE tenant = :tenant AND digest = :digest
    AND NOT EXISTS (SELECT 1 FROM blob_use u WHERE u.tenant = blob.tenant AND u.digest = blob.digest);

-- name: keys_of_user
-- Delete a user's idempotency keys.
DELETE FROM idempotency WHERE tenant = :tenant AND substr(key, 1, length(:prefix)) = :prefix;

-- name: observations_naming
-- Select observations that name a user or a conversation.
SELECT no, user_id, body FROM prompt_observation WHERE tenant = :tenant
    AND (user_id = :user OR instr(CAST(body AS TEXT), :needle) > 0);

-- name: observation_rename
-- Replace the user of an observation.
UPDATE prompt_observation SET user_id = :user, body = :body WHERE no = :no;

-- name: audit_naming
-- Select records with texts that contain a name.
SELECT seq, body, texts FROM audit_record WHERE tenant = :tenant AND length(texts) > 2
    AND (instr(CAST(body AS TEXT), :needle) > 0 OR instr(CAST(texts AS TEXT), :inside) > 0) ORDER BY seq;

-- name: audit_exports
-- Select the records of exports and backups, newest first.
SELECT seq FROM audit_record WHERE tenant = :tenant AND instr(CAST(body AS TEXT), '"event":"export"') > 0 ORDER BY seq DESC;

-- name: audit_erase
-- Erase the texts of a record; its commitments stay.
UPDATE audit_record SET texts = :texts WHERE tenant = :tenant AND seq = :seq;

-- name: user_names
-- Select all users that an erasure can name.
SELECT user_id FROM conversation WHERE tenant = :tenant AND user_id IS NOT NULL
UNION SELECT user_id FROM participant WHERE tenant = :tenant UNION SELECT sender FROM post WHERE tenant = :tenant
UNION SELECT user_id FROM prompt_observation WHERE tenant = :tenant
UNION SELECT of_user FROM place WHERE tenant = :tenant AND of_user IS NOT NULL;

-- name: conversation_names
-- Select the ids of all conversations.
SELECT id FROM conversation WHERE tenant = :tenant;

-- name: memory_names
-- Select the names of all memories and items.
SELECT id FROM memory WHERE tenant = :tenant UNION SELECT 'memory:' || id FROM memory WHERE tenant = :tenant
UNION SELECT 'item:' || c.id || ':' || i.id FROM item i JOIN conversation c ON c.tenant = i.tenant AND c.no = i.conversation
WHERE i.tenant = :tenant;

-- name: memory_owners
-- Select the owners of the places of a kind that have memories.
SELECT DISTINCT owner FROM memory WHERE tenant = :tenant AND kind = :kind;

-- name: receipt_insert
-- Store the receipt of an erasure.
INSERT INTO receipt (tenant, id, state, body, created_at) VALUES (:tenant, :id, :state, :body, :now);

-- name: receipt_get
-- Select a receipt.
SELECT body FROM receipt WHERE tenant = :tenant AND id = :id;

-- name: receipts_last
-- Select the newest receipts, newest first.
SELECT body FROM receipt WHERE tenant = :tenant
ORDER BY created_at DESC, CAST(json_extract(CAST(body AS TEXT), '$.epoch') AS INTEGER) DESC LIMIT :limit;

-- name: receipts_all
-- Select all receipts.
SELECT id, body FROM receipt WHERE tenant = :tenant ORDER BY id;

-- name: tenants_all
-- Select all tenants with data that an erasure can name.
SELECT tenant FROM conversation UNION SELECT tenant FROM seal_total;

-- name: receipts_pending
-- Select unsigned receipts, oldest first.
SELECT tenant, body FROM receipt WHERE state = 'pending' ORDER BY created_at LIMIT :limit;

-- name: receipt_finish
-- Replace a pending receipt by the signed one.
UPDATE receipt SET state = 'done', body = :body WHERE tenant = :tenant AND id = :id AND state = 'pending';

-- name: conversations_idle
-- Select conversations without a post since a time: of the oldest 10,000, from tenants in turn.
SELECT tenant, id FROM (
    SELECT tenant, id, updated_at, no FROM conversation WHERE updated_at < :before AND lease_until = 0
    ORDER BY updated_at, no LIMIT 10000) AS due
ORDER BY row_number() OVER (PARTITION BY tenant ORDER BY updated_at, no), updated_at, no LIMIT :limit;

-- name: memories_untouched
-- Select memories that were not stated, repeated, changed or ended since a time: of the oldest 10,000, from tenants in turn.
SELECT tenant, id FROM (
    SELECT tenant, id, used_at, no FROM memory WHERE used_at < :before AND coalesce(valid_to, 0) < :before
    ORDER BY used_at, no LIMIT 10000) AS due
ORDER BY row_number() OVER (PARTITION BY tenant ORDER BY used_at, no), used_at, no LIMIT :limit;

-- name: memories_from
-- Select memories from a conversation, by source post.
SELECT DISTINCT m.*, s.post FROM memory_source s JOIN memory m ON m.tenant = s.tenant AND m.no = s.memory
WHERE s.tenant = :tenant AND s.conversation = :no ORDER BY m.no;

-- name: memories_superseded
-- Select a place's memories that another one superseded or ended, except manual ones.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND id = :before AND valid_to IS NOT NULL AND written = 0
UNION SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND ended_by = :id AND valid_to IS NOT NULL AND written = 0;

-- name: memories_of_persona
-- Select a persona's memories, of one user or of all.
SELECT * FROM memory WHERE tenant = :tenant AND kind = 'persona' AND substr(owner, 1, length(:persona) + 1) = :persona || char(31)
    AND (:user IS NULL OR substr(owner, length(:persona) + 2) = :user) ORDER BY no;

-- name: memories_of_user
-- Select a user's memories: their own, and those of each persona about them.
SELECT m.* FROM place p CROSS JOIN memory m ON m.tenant = p.tenant AND m.kind = p.kind AND m.owner = p.owner
WHERE p.tenant = :tenant AND ((p.kind = 'user' AND p.owner = :user)
    OR (p.kind = 'persona' AND substr(p.owner, instr(p.owner, char(31)) + 1) = :user)) ORDER BY m.no;

-- name: places_of_user
-- Remove a user as the owner of places.
DELETE FROM place WHERE tenant = :tenant AND ((kind = 'user' AND owner = :user)
    OR (kind = 'persona' AND substr(owner, instr(owner, char(31)) + 1) = :user));

-- name: memory_source_drop
-- Delete one source of a memory.
DELETE FROM memory_source WHERE tenant = :tenant AND memory = :memory AND conversation = :no AND post = :post RETURNING *;

-- name: memory_forgets
-- Remove references to deleted memories from a place.
WITH gone (id) AS MATERIALIZED (SELECT value FROM json_each(:ids))
UPDATE memory SET supersedes = iif(supersedes IN (SELECT id FROM gone), NULL, supersedes), ended_by = iif(ended_by IN (SELECT id FROM gone), NULL, ended_by)
WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND (supersedes IN (SELECT id FROM gone) OR ended_by IN (SELECT id FROM gone)) RETURNING *;

-- name: delivery_anew
-- Restart the delivery of a conversation; a running delivery finds the mark moved.
UPDATE delivery SET seq = 0, version = 0 - :epoch, due = 1 WHERE tenant = :tenant AND conversation = :no;

-- name: windows_naming
-- Select steps whose window contains memories, of a user's conversations or of all.
SELECT s.conversation AS no, s.turn, s.n, s.manifest, s.state FROM step s JOIN conversation c ON c.tenant = s.tenant AND c.no = s.conversation
WHERE s.tenant = :tenant AND (:user IS NULL OR c.user_id = :user) AND instr(CAST(s.manifest AS TEXT), '"memory:') > 0;

-- name: optimize_memory_text
-- Merge the full-text index of memories so that forgotten terms leave its segments.
INSERT INTO memory_text (memory_text) VALUES ('optimize');

-- name: sources_of
-- Select the source posts of a memory.
SELECT conversation, post FROM memory_source WHERE tenant = :tenant AND memory = :no ORDER BY conversation, post;

-- ---- Corrections -----------------------------------------------------------------------------------------

-- name: correction_insert
-- Store a correction.
INSERT INTO correction (tenant, conversation, posts, marks, text, due) VALUES (:tenant, :no, :posts, :marks, :text, 1);

-- name: correction_again
-- Replace the text of an earlier correction.
UPDATE correction SET text = :text WHERE tenant = :tenant AND conversation = :no AND text = :before AND text <> '';

-- name: corrections_of
-- Select a conversation's corrections, in the order they were made.
SELECT no, posts, marks, text FROM correction WHERE tenant = :tenant AND conversation = :no ORDER BY no;

-- name: correction_last
-- Select the newest correction of a conversation.
SELECT coalesce(max(no), 0) FROM correction WHERE tenant = :tenant AND conversation = :no;

-- name: correction_posts
-- Reduce the posts of a correction.
UPDATE correction SET posts = :posts WHERE no = :no;

-- name: correction_delete
-- Delete a correction.
DELETE FROM correction WHERE no = :no;

-- name: delete_corrections
-- Delete a conversation's corrections.
DELETE FROM correction WHERE tenant = :tenant AND conversation = :no;

-- name: corrections_due
-- Select conversations whose current summary lacks a correction.
SELECT c.tenant, c.id FROM correction k JOIN conversation c ON c.no = k.conversation
WHERE k.due = 1 AND c.mark > 0 AND k.no > (SELECT s.corrected FROM summary s
    WHERE s.tenant = k.tenant AND s.conversation = k.conversation AND s.upto_seq = c.mark ORDER BY s.version DESC LIMIT 1)
GROUP BY c.tenant, c.no, c.id ORDER BY row_number() OVER (PARTITION BY c.tenant ORDER BY c.no), c.no LIMIT :limit;

-- name: corrections_done
-- Mark corrections as included in a summary.
UPDATE correction SET due = 0 WHERE tenant = :tenant AND conversation = :no AND due = 1 AND no <= :corrected;

-- name: summaries_told
-- Select the texts of all summaries of a conversation.
SELECT markdown || char(10) || tainted || char(10) || memory_json FROM summary WHERE tenant = :tenant AND conversation = :no;

-- name: conversation_derived_anew
-- Reset summarization of a conversation to its first post.
UPDATE conversation SET mark = 0, backlog = :backlog, backlog_tokens = :backlog_tokens, compact_not_before = 0,
    generation = generation + 1 WHERE no = :no;

-- ---- Reflections -----------------------------------------------------------------------------------------

-- name: reflection_ask
-- Request a reflection on a turn, after the existing ones.
INSERT INTO reflection (tenant, conversation, turn, n, due, calls)
SELECT :tenant, :no, :turn, coalesce(max(n), 0) + 1, 1, :calls FROM reflection
WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- name: reflections_due
-- Select the oldest due reflection of each conversation or of one, of an ended turn, and their number.
SELECT r.tenant, c.id, min(r.turn * 1000000 + r.n) AS place, count(*) AS due FROM reflection r
JOIN conversation c ON c.no = r.conversation
JOIN turn t ON t.tenant = r.tenant AND t.conversation = r.conversation AND t.n = r.turn
WHERE r.due = 1 AND t.state <> 'running' AND (:id IS NULL OR (r.tenant = :tenant AND c.id = :id))
GROUP BY r.tenant, r.conversation, c.id
ORDER BY row_number() OVER (PARTITION BY r.tenant ORDER BY r.conversation), r.conversation LIMIT :limit;

-- name: reflections_waiting
-- Count the due reflections of a conversation.
SELECT count(*) FROM reflection WHERE tenant = :tenant AND conversation = :no AND due = 1;

-- name: reflection_get
-- Select a reflection by turn and number.
SELECT * FROM reflection WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n;

-- name: reflection_done
-- Store the result of a reflection.
UPDATE reflection SET due = 0, body = :body
WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n AND due = 1;

-- name: reflections_made
-- Select reflections up to a turn, newest first, with the positions of their turns.
SELECT r.body, t.query_seq, t.reply_seq FROM reflection r
JOIN turn t ON t.tenant = r.tenant AND t.conversation = r.conversation AND t.n = r.turn
WHERE r.tenant = :tenant AND r.conversation = :no AND r.due = 0 AND r.turn <= :turn ORDER BY r.turn DESC, r.n DESC;

-- name: delete_reflections
-- Delete a conversation's reflections.
DELETE FROM reflection WHERE tenant = :tenant AND conversation = :no;

-- ---- Outcomes: feedback on turns -------------------------------------------------------------------------

-- name: outcome_get
-- Select the outcome of a turn.
SELECT body AS outcome, due, revision, taught, conversation AS no FROM outcome
WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- name: outcomes_lately
-- Select the outcomes of a conversation's newest turns, newest first.
SELECT body FROM outcome WHERE tenant = :tenant AND conversation = :no ORDER BY turn DESC LIMIT :limit;

-- name: outcome_note
-- Store the outcome of a turn unless it has one.
INSERT INTO outcome (tenant, conversation, turn, due, revision, user_id, body, taught)
VALUES (:tenant, :no, :turn, 1, 1, :user, :body, :taught) ON CONFLICT DO NOTHING;

-- name: outcome_give
-- Replace the outcome of a turn and mark it as due.
INSERT INTO outcome (tenant, conversation, turn, due, revision, user_id, body, taught)
VALUES (:tenant, :no, :turn, 1, 1, :user, :body, :taught)
ON CONFLICT (tenant, conversation, turn) DO UPDATE SET due = 1, revision = outcome.revision + 1, user_id = excluded.user_id, body = excluded.body;

-- name: outcome_taught
-- Mark an outcome as applied to its prompts.
UPDATE outcome SET due = 0, taught = :taught WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND revision = :revision AND due = 1;

-- name: outcomes_due
-- Select turns whose outcome was not yet applied.
SELECT o.tenant, c.id AS conversation, o.turn FROM outcome o
CROSS JOIN conversation c ON c.no = o.conversation
WHERE o.due = 1
ORDER BY row_number() OVER (PARTITION BY o.tenant ORDER BY o.conversation, o.turn), o.conversation LIMIT :limit;

-- name: delete_outcomes
-- Delete the outcomes of a conversation's turns.
DELETE FROM outcome WHERE tenant = :tenant AND conversation = :no;

-- name: outcomes_of
-- Select the outcome of each turn of a conversation, and its user.
SELECT turn, user_id, body FROM outcome WHERE tenant = :tenant AND conversation = :no;

-- name: outcome_delete
-- Delete the outcome of a turn.
DELETE FROM outcome WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- ---- Shadow mode -----------------------------------------------------------------------------------------

-- name: shadow_calls
-- Select the steps of shadow turns that a user may see, of one conversation or of all, oldest first.
SELECT c.id AS conversation, t.n AS turn, s.n AS step, s.reply_usage AS usage, coalesce(p.tokens, 0) AS reply_tokens,
    json_extract(t.metadata, '$.shadow') AS kept
FROM turn t JOIN conversation c ON c.no = t.conversation
JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
LEFT JOIN post p ON p.conversation = s.conversation AND p.seq = s.reply_seq AND s.reply_seq > 0
WHERE t.tenant = :tenant AND (:no IS NULL OR t.conversation = :no) AND json_extract(t.metadata, '$.shadow') IS NOT NULL
    AND (:user IS NULL OR (c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user))
ORDER BY t.created_at, c.no, t.n, s.n;

-- ---- Usage -----------------------------------------------------------------------------------------------

-- name: calls_spent
-- Select the model calls of some turns, with the tokens of the path and of the answer, oldest first.
SELECT t.n AS turn, s.n AS step, t.steps AS steps, s.state, s.manifest, s.reply_usage AS usage, t.created_at AS at,
    coalesce(b.path_tokens, 0) AS path_tokens, coalesce(b.path_count, 0) AS posts, coalesce(r.tokens, 0) AS reply,
    json_extract(t.metadata, '$.window.cache') AS cache, json_extract(t.metadata, '$.answer.model') AS model,
    json_extract(t.metadata, '$.shadow') IS NOT NULL AS shadow
FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
LEFT JOIN post b ON b.tenant = s.tenant AND b.conversation = s.conversation AND b.seq = s.base
LEFT JOIN post r ON r.tenant = s.tenant AND r.conversation = s.conversation AND r.seq = s.reply_seq AND s.reply_seq > 0
WHERE t.tenant = :tenant AND t.conversation = :no AND t.n BETWEEN :first AND :last ORDER BY t.n, s.n;

-- name: token_reports
-- Select the newest step of the most recent conversations, with our count and the provider's count of its prompt.
SELECT c.id AS conversation, s.n AS step, s.reply_usage AS usage, CAST(json_extract(t.metadata, '$.window.tokens') AS INTEGER) AS tokens,
    json_extract(t.metadata, '$.window.context.model') AS model, json_extract(t.metadata, '$.shadow') AS shadow
FROM (SELECT no, id, turns, updated_at FROM conversation WHERE tenant = :tenant ORDER BY updated_at DESC LIMIT :limit) c
JOIN turn t ON t.tenant = :tenant AND t.conversation = c.no AND t.n = c.turns
JOIN step s ON s.tenant = :tenant AND s.conversation = c.no AND s.turn = t.n AND s.n = t.steps
WHERE s.reply_usage IS NOT NULL ORDER BY c.updated_at;

-- ---- The conversation list -------------------------------------------------------------------------------

-- name: post_place
-- Select the position, sender and time of a post.
SELECT id, seq, role, sender, created_at AS at FROM post WHERE tenant = :tenant AND conversation = :no AND id = :id;

-- name: talks_page
-- Select a page of a tenant's conversations or utility calls, newest first, each with the start of its first user post.
SELECT c.*, c.user_id AS "user", coalesce((
    SELECT substr(coalesce(p.message, p.small, ''), 1, 400) FROM post p
    WHERE p.tenant = c.tenant AND p.conversation = c.no AND p.seq <= 8 AND p.role = 'user' ORDER BY p.seq LIMIT 1
), '') AS said
FROM conversation c
WHERE tenant = :tenant AND utility = :utility AND (updated_at < :before OR (updated_at = :before AND no < :before_no))
    AND (:user IS NULL OR (user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(participants) WHERE value = :user))
ORDER BY updated_at DESC, no DESC LIMIT :limit;

-- name: talk_said
-- Select the texts of a conversation's first user posts, or the digests of bodies that are stored apart.
SELECT coalesce(message, small) AS text, body FROM post
WHERE tenant = :tenant AND conversation = :no AND seq <= 8 AND role = 'user' ORDER BY seq;

-- name: turn_newest
-- Select the newest turn of a conversation with the manifest of its newest step.
SELECT t.n, t.state, json_extract(t.metadata, '$.shadow') IS NOT NULL AS shadow, s.manifest
FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
WHERE t.tenant = :tenant AND t.conversation = :no ORDER BY t.n DESC, s.n DESC LIMIT 1;

-- name: turns_answering
-- Select the steps of the turns of some rounds, oldest first.
SELECT t.n AS turn, s.n AS step, t.round, t.state, t.query_seq, s.reply_seq, s.error, s.manifest, json_extract(t.metadata, '$.shadow') IS NOT NULL AS shadow
FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
WHERE t.tenant = :tenant AND t.conversation = :no AND t.round BETWEEN :first AND :last ORDER BY t.n, s.n;

-- name: answers_of_rounds
-- Select the turn and step of each answer in some rounds.
SELECT s.reply_seq, s.turn, s.n FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
WHERE t.tenant = :tenant AND t.conversation = :no AND t.round IN (SELECT CAST(value AS INTEGER) FROM json_each(:rounds)) AND s.reply_seq > 0;

-- name: claims_now
-- Select the time of the database in seconds.
SELECT (julianday('now') - 2440587.5) * 86400.0;

-- name: claims_count
-- Count the claims of background work.
SELECT count(*) FROM claim;

-- name: claims_of
-- Select the claims of some jobs.
SELECT tenant, job, piece, holder, until FROM claim WHERE job IN (SELECT value FROM json_each(:jobs));

-- name: claim_put
-- Store a claim of background work, or replace one.
INSERT INTO claim (tenant, job, piece, holder, until) VALUES (:tenant, :job, :piece, :holder, :until)
ON CONFLICT (tenant, job, piece) DO UPDATE SET holder = excluded.holder, until = excluded.until;

-- name: claims_renew
-- Extend the claims of a worker whose time is not over.
UPDATE claim SET until = :until WHERE holder = :holder AND until > :now;

-- name: claim_end
-- End a worker's claim: its work is finished.
UPDATE claim SET until = :now WHERE tenant = :tenant AND job = :job AND piece = :piece AND holder = :holder AND until > :now;

-- name: claim_drop
-- Delete a worker's claim.
DELETE FROM claim WHERE tenant = :tenant AND job = :job AND piece = :piece AND holder = :holder;

-- name: claims_drop
-- Delete claims that ended before a time.
DELETE FROM claim WHERE until < :before;

-- ---- documents --------------------------------------------------------------------------------------------

-- name: document_put
-- Store a document, or replace its value; an equal value keeps its time.
INSERT INTO document (tenant, user_id, space, key, body, created_at, updated_at, expires_at)
VALUES (:tenant, :user, :space, :key, :body, :now, :now, :until)
ON CONFLICT (tenant, user_id, space, key)
DO UPDATE SET body = excluded.body, expires_at = excluded.expires_at,
    updated_at = CASE WHEN document.body = excluded.body THEN document.updated_at ELSE excluded.updated_at END RETURNING *;

-- name: document_get
-- Select a document that has not expired.
SELECT space, key, body, created_at, updated_at, expires_at FROM document
WHERE tenant = :tenant AND user_id = :user AND space = :space AND key = :key AND (expires_at IS NULL OR expires_at > :now);

-- name: document_row
-- Select a document, also an expired one.
SELECT * FROM document WHERE tenant = :tenant AND user_id = :user AND space = :space AND key = :key;

-- name: document_delete
-- Delete a document.
DELETE FROM document WHERE tenant = :tenant AND user_id = :user AND space = :space AND key = :key RETURNING *;

-- name: documents_page
-- Select the documents of a range of places after one, by place and key.
SELECT space, key, body, created_at, updated_at, expires_at FROM document
WHERE tenant = :tenant AND user_id = :user AND space >= :first AND space < :last AND (space, key) > (:after, :key)
    AND (expires_at IS NULL OR expires_at > :now) ORDER BY space, key LIMIT :limit;

-- name: documents_back
-- Select the documents of a range of places before one, by place and key, the last first.
SELECT space, key, body, created_at, updated_at, expires_at FROM document
WHERE tenant = :tenant AND user_id = :user AND space >= :first AND space < :last AND (space, key) < (:after, :key)
    AND (expires_at IS NULL OR expires_at > :now) ORDER BY space DESC, key DESC LIMIT :limit;

-- name: documents_delete
-- Delete the documents of a range of places.
DELETE FROM document WHERE tenant = :tenant AND user_id = :user AND space >= :first AND space < :last RETURNING *;

-- name: documents_spaces
-- Select the places of a range that have documents.
SELECT DISTINCT space FROM document
WHERE tenant = :tenant AND user_id = :user AND space >= :first AND space < :last
    AND (expires_at IS NULL OR expires_at > :now) ORDER BY space;

-- name: documents_expired
-- Delete some expired documents of a tenant.
DELETE FROM document WHERE (tenant, user_id, space, key) IN (
    SELECT tenant, user_id, space, key FROM document
    WHERE tenant = :tenant AND expires_at <= :now ORDER BY expires_at LIMIT 100) RETURNING *;

-- name: documents_of_user
-- Delete the documents of a user.
DELETE FROM document WHERE tenant = :tenant AND user_id = :user RETURNING *;

-- ---- seals ------------------------------------------------------------------------------------------------

-- name: seals_put
-- Store the seals of rows, and select those that they had before.
INSERT INTO seal (tenant, name, mac) SELECT :tenant, json_extract(value, '$.name'), json_extract(value, '$.mac') FROM json_each(:seals) WHERE true
ON CONFLICT (tenant, name) DO UPDATE SET earlier = seal.mac, mac = excluded.mac RETURNING name, earlier;

-- name: seals_delete
-- Delete the seals of rows.
DELETE FROM seal WHERE tenant = :tenant AND name IN (SELECT value FROM json_each(:names)) RETURNING name, mac;

-- name: seals_delete_all
-- Delete all seals of a tenant.
DELETE FROM seal WHERE tenant = :tenant;

-- name: seals_of
-- Select all seals of a tenant.
SELECT name, mac FROM seal WHERE tenant = :tenant;

-- name: seal_total_next
-- Count a change of sealed rows, and select the sum that it changes.
INSERT INTO seal_total (tenant, changes, recorded, total) VALUES (:tenant, 1, 0, :none)
ON CONFLICT (tenant) DO UPDATE SET changes = seal_total.changes + 1 RETURNING changes, recorded, total;

-- name: seal_total_put
-- Store the sum of a tenant's seals.
UPDATE seal_total SET recorded = :recorded, total = :total WHERE tenant = :tenant;

-- name: seal_total_get
-- Select the sum of a tenant's seals.
SELECT changes, recorded, total FROM seal_total WHERE tenant = :tenant;

-- name: sealed_documents
-- Select a page of all documents.
SELECT * FROM document WHERE tenant = :tenant AND (user_id, space, key) > (:user_id, :space, :key) ORDER BY user_id, space, key LIMIT :limit;

-- name: sealed_memories
-- Select a page of all memories.
SELECT * FROM memory NOT INDEXED WHERE tenant = :tenant AND no > :no ORDER BY no LIMIT :limit;

-- name: sealed_sources
-- Select a page of all sources of memories.
SELECT * FROM memory_source WHERE tenant = :tenant AND (memory, conversation, post) > (:memory, :conversation, :post)
ORDER BY memory, conversation, post LIMIT :limit;

-- name: audit_of_event
-- Select the records of an event, oldest first.
SELECT body FROM audit_record WHERE tenant = :tenant AND instr(CAST(body AS TEXT), :event) > 0 ORDER BY seq;

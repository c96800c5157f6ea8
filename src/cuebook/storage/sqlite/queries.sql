-- Named statements with a sentence each. Loaded by base.py.

-- name: conversation_by_id
-- Select a conversation's row by tenant and id.
SELECT * FROM conversation WHERE tenant = :tenant AND id = :id;

-- name: conversation_insert
-- Insert a conversation.
INSERT INTO conversation (tenant, id, user_id, persona, participants, speakers, metadata, head, last_seq, turns, generation, created_at,
    updated_at, fence, lease_turn, lease_until, open_round, mark, backlog, backlog_tokens, compact_not_before, compact_last_at,
    compact_failures, words)
VALUES (:tenant, :id, :user_id, :persona, :participants, '[]', '{}', 0, 0, 0, 0, :now, :now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
RETURNING no;

-- name: conversation_grow
-- Update head and counters after posts were stored.
UPDATE conversation SET head = :head, last_seq = :last_seq, generation = generation + 1, updated_at = :now, mark = :mark,
    backlog = :backlog, backlog_tokens = :backlog_tokens, speakers = :speakers, words = :words
WHERE no = :no;

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

-- name: conversation_round
-- Set the open round, 0 for none.
UPDATE conversation SET open_round = :open_round WHERE no = :no;

-- name: conversation_owner
-- Set the owner of a conversation.
UPDATE conversation SET user_id = :user_id, participants = :participants WHERE no = :no;

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

-- name: conversations_page
-- Select a page of a tenant's conversations, newest first, from a cursor on.
SELECT * FROM conversation
WHERE tenant = :tenant AND (updated_at < :before OR (updated_at = :before AND no < :before_no))
    AND (:user IS NULL OR (user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(participants) WHERE value = :user))
ORDER BY updated_at DESC, no DESC LIMIT :limit;

-- name: post_at
-- Select the fields of a post that an insertion after it needs.
SELECT seq, run_start, run_parent, round, path_tokens, path_count FROM post
WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: post_by_id
-- Select a post's seq and digest by id.
SELECT seq, digest FROM post WHERE tenant = :tenant AND conversation = :no AND id = :id;

-- name: post_insert
-- Insert a post.
INSERT INTO post (tenant, conversation, seq, id, parent, run_start, run_parent, round, sender, recipient, role, state, message, small,
    parts, wire, body, created_at, tokens, small_tokens, path_tokens, path_count, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: post_text_insert
-- Add a post to the full-text index. The rowid is conversation << 32 | seq.
INSERT INTO post_text (rowid, scope, key) VALUES (?, ?, ?);

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
    parts, CASE WHEN small IS NULL OR parts = x'' THEN coalesce(body, wire) END, state FROM post
WHERE tenant = :tenant AND conversation = :no AND seq BETWEEN :first AND :last ORDER BY seq DESC;

-- name: posts_stretch
-- Select whole posts of a stretch of a run, oldest first.
SELECT id, seq, parent, round, sender, recipient, role, message, created_at, tokens, parts, wire, state, digest, body FROM post
WHERE tenant = :tenant AND conversation = :no AND seq BETWEEN :first AND :last ORDER BY seq;

-- name: sums_at
-- Select the running sums at a post.
SELECT path_tokens, path_count, tokens FROM post WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: posts_by_digests
-- Select posts of a conversation equal to some messages, as one row of JSON; `at` is the message's number. `digests` are concatenated.
SELECT json_group_array(json_array(j.value, p.seq, p.parent, p.path_count, p.run_start, p.run_parent))
FROM json_each(:at) j CROSS JOIN post p INDEXED BY post_digest
WHERE p.tenant = :tenant AND p.digest = substr(:digests, 1 + 16 * j.value, 16) AND p.conversation = :no;

-- name: spot_of
-- Select the position of a post in its tree.
SELECT seq, parent, path_count, run_start, run_parent FROM post WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: conversations_by_digest
-- Select conversations of one user with a post of this digest, newest first.
SELECT DISTINCT p.conversation FROM post p INDEXED BY post_digest CROSS JOIN conversation c ON c.no = p.conversation
WHERE p.tenant = :tenant AND p.digest = :digest AND c.user_id IS :user ORDER BY p.conversation DESC LIMIT :limit;

-- name: conversation_by_no
-- Select a conversation's row by number.
SELECT * FROM conversation WHERE tenant = :tenant AND no = :no;

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

-- name: step_partial
-- Save the partial answer of a running step.
UPDATE step SET partial = :partial WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n;

-- name: step_close
-- End a step.
UPDATE step SET state = :state, partial = NULL, reply_seq = :reply_seq, reply_usage = :usage, error = :error
WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n;

-- name: steps_of
-- Select a turn's steps in order.
SELECT n, state, manifest, base, moves_head, partial, reply_seq, reply_usage, error FROM step
WHERE tenant = :tenant AND conversation = :no AND turn = :turn ORDER BY n;

-- name: step_last
-- Select the newest step of a turn.
SELECT n, state, manifest, base, moves_head, partial, reply_seq, reply_usage, error FROM step
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
    valid_from, valid_to, supersedes, superseded_by, seq)
VALUES (:tenant, :no, :id, :made_in, :ended_in, :category, :text, :subject, :name, :status, :sources, :trust, :confidence, :weight,
    :valid_from, :valid_to, :supersedes, :superseded_by, :seq) ON CONFLICT DO NOTHING;

-- name: items_of
-- Select all forms of a conversation's items, oldest first.
SELECT * FROM item WHERE tenant = :tenant AND conversation = :no ORDER BY made_in;

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
    (SELECT json_extract(t.parameters, '$.compressionTrigger') FROM tuning t
        WHERE t.tenant = conversation.tenant AND t.conversation = no AND json_extract(t.parameters, '$.runs') > 0)
FROM conversation
WHERE backlog > 0 AND backlog >= :least AND open_round = 0 AND lease_until = 0 AND (:id IS NULL OR id = :id)
    AND (backlog < :backlog OR (backlog = :backlog AND no < :no)) ORDER BY backlog DESC, no DESC LIMIT :limit;

-- name: leases_held
-- Select all leases, earliest end first.
SELECT tenant, no, fence, lease_until, lease_holder FROM conversation WHERE lease_until > 0 ORDER BY lease_until;

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
VALUES (:tenant, :key, :digest, :no, :turn, :response, :now);

-- name: idempotency_rebind
-- Rebind an idempotency key for the same request if its step has no complete answer; `response` is that step.
UPDATE idempotency SET conversation = :no, turn = :turn, response = :response, created_at = :now
WHERE tenant = :tenant AND key = :key AND digest = :digest AND EXISTS (
    SELECT 1 FROM step s WHERE s.tenant = idempotency.tenant AND s.conversation = idempotency.conversation AND s.turn = idempotency.turn
    AND s.n = CAST(CAST(idempotency.response AS TEXT) AS INTEGER) AND s.state IN ('failed', 'interrupted'));

-- name: idempotency_retell
-- Replace the stored answer of an idempotency key.
UPDATE idempotency SET response = :response WHERE tenant = :tenant AND key = :key AND digest = :digest;

-- name: idempotency_old
-- Check whether there are idempotency keys older than a time.
SELECT 1 FROM idempotency WHERE created_at < :before LIMIT 1;

-- name: idempotency_forget
-- Delete idempotency keys older than a time, oldest first.
DELETE FROM idempotency WHERE (tenant, key) IN (
    SELECT tenant, key FROM idempotency WHERE created_at < :before ORDER BY created_at LIMIT :limit);

-- name: search_posts
-- Select the best full-text matches in a range of rows.
SELECT rowid FROM post_text WHERE post_text MATCH :match AND rowid BETWEEN :first AND :last ORDER BY bm25(post_text, 0.0, 1.0) LIMIT :limit;

-- name: search_count
-- Count the rows of a range with a term.
SELECT count(*) FROM post_text WHERE post_text MATCH :match AND rowid BETWEEN :first AND :last;

-- name: found_posts
-- Select posts for recall with their indexed words (from FTS5's content table: one lookup), by seq.
SELECT p.seq, p.id, p.role, p.sender, p.message, p.created_at, p.tokens, p.parent, p.body, t.c1 FROM json_each(:seqs) j
CROSS JOIN post p ON p.tenant = :tenant AND p.conversation = :no AND p.seq = j.value
LEFT JOIN post_text_content t ON t.id = :base + j.value ORDER BY p.seq;

-- name: delete_post_text
-- Delete the full-text rows of a conversation.
DELETE FROM post_text WHERE rowid BETWEEN :first AND :last;

-- name: delete_posts
-- Delete a conversation's posts.
DELETE FROM post WHERE tenant = :tenant AND conversation = :no;

-- name: delete_turns
-- Delete a conversation's turns.
DELETE FROM turn WHERE tenant = :tenant AND conversation = :no;

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

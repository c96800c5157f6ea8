-- name: correction_insert
-- Keep a correction.
INSERT INTO correction (tenant, conversation, posts, marks, text, due) VALUES (:tenant, :no, :posts, :marks, :text, 1);

-- name: correction_again
-- Correct what a correction itself had written.
UPDATE correction SET text = :text WHERE tenant = :tenant AND conversation = :no AND text = :before AND text <> '';

-- name: corrections_of
-- A conversation's corrections, in the order they were made.
SELECT no, posts, marks, text FROM correction WHERE tenant = :tenant AND conversation = :no ORDER BY no;

-- name: correction_last
-- The newest correction of a conversation.
SELECT coalesce(max(no), 0) FROM correction WHERE tenant = :tenant AND conversation = :no;

-- name: correction_posts
-- Let a correction be of fewer posts.
UPDATE correction SET posts = :posts WHERE no = :no;

-- name: correction_delete
-- Forget a correction.
DELETE FROM correction WHERE no = :no;

-- name: delete_corrections
-- Forget a conversation's corrections.
DELETE FROM correction WHERE tenant = :tenant AND conversation = :no;

-- name: corrections_due
-- Conversations whose head's summary does not know of a correction.
SELECT DISTINCT c.tenant, c.id FROM correction k JOIN conversation c ON c.no = k.conversation
WHERE k.due = 1 AND c.mark > 0 AND k.no > (SELECT s.corrected FROM summary s
    WHERE s.tenant = k.tenant AND s.conversation = k.conversation AND s.upto_seq = c.mark ORDER BY s.version DESC LIMIT 1)
LIMIT :limit;

-- name: corrections_done
-- Note that a summary knows of corrections.
UPDATE correction SET due = 0 WHERE tenant = :tenant AND conversation = :no AND due = 1 AND no <= :corrected;

-- name: summaries_told
-- What all summaries of a conversation say.
SELECT markdown || char(10) || tainted || char(10) || memory_json FROM summary WHERE tenant = :tenant AND conversation = :no;

-- name: conversation_derived_anew
-- Let passes derive a conversation's memory anew from its first post on.
UPDATE conversation SET mark = 0, backlog = :backlog, backlog_tokens = :backlog_tokens, compact_not_before = 0,
    generation = generation + 1 WHERE no = :no;

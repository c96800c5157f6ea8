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
SELECT DISTINCT c.tenant, c.id FROM correction k JOIN conversation c ON c.no = k.conversation
WHERE k.due = 1 AND c.mark > 0 AND k.no > (SELECT s.corrected FROM summary s
    WHERE s.tenant = k.tenant AND s.conversation = k.conversation AND s.upto_seq = c.mark ORDER BY s.version DESC LIMIT 1)
LIMIT :limit;

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

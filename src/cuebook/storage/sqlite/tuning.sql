-- Optimizer parameters (tunings), their runs, and the counts of the analyzer.

-- name: tuning_get
-- Select a conversation's tuning.
SELECT parameters, seen_seq, updated_at FROM tuning WHERE tenant = :tenant AND conversation = :no;

-- name: tuning_put
-- Store a conversation's tuning, if it is unchanged since the run started.
INSERT INTO tuning (tenant, conversation, parameters, seen_seq, updated_at) VALUES (:tenant, :no, :parameters, :seen_seq, :now)
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
ORDER BY c.no LIMIT :limit;

-- name: tuning_totals
-- Select the totals of a tenant's runs, of one conversation or of those of a user.
SELECT coalesce(sum(json_extract(t.parameters, '$.runs')), 0) AS runs, coalesce(sum(json_extract(t.parameters, '$.tokensSaved')), 0) AS saved
FROM tuning t JOIN conversation c ON c.tenant = t.tenant AND c.no = t.conversation
WHERE t.tenant = :tenant AND (:id IS NULL OR c.id = :id)
    AND (:user IS NULL OR (c.user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(c.participants) WHERE value = :user));

-- name: tuning_latest
-- Select the parameters of the newest run, of one conversation or of those of a user.
SELECT t.parameters FROM tuning t JOIN conversation c ON c.tenant = t.tenant AND c.no = t.conversation
WHERE t.tenant = :tenant AND (:id IS NULL OR c.id = :id) AND json_extract(t.parameters, '$.runs') > 0
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

-- name: tally_memories
-- Count valid long-term memories: of a user and their personas, or of a tenant with some organizations or all.
SELECT count(*) AS memories FROM memory WHERE tenant = :tenant AND valid_to IS NULL
    AND (:user IS NULL OR (kind = 'user' AND owner = :user) OR (kind = 'persona' AND substr(owner, instr(owner, char(31)) + 1) = :user))
    AND (kind <> 'organization' OR :organizations IS NULL OR owner IN (SELECT value FROM json_each(:organizations)));

-- name: delete_tuning
-- Delete a conversation's tuning.
DELETE FROM tuning WHERE tenant = :tenant AND conversation = :no;

-- name: delete_optimizations
-- Delete a conversation's snapshots.
DELETE FROM optimization WHERE tenant = :tenant AND conversation = :no;

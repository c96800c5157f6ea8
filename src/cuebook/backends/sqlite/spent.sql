-- name: calls_spent
-- The model calls of some turns of a conversation, with the tokens of the path each answered and of its answer, oldest first.
SELECT t.n AS turn, s.n AS step, t.steps AS steps, s.state, s.manifest, s.reply_usage AS usage, t.created_at AS at,
    coalesce(b.path_tokens, 0) AS path_tokens, coalesce(b.path_count, 0) AS posts, coalesce(r.tokens, 0) AS reply,
    json_extract(t.metadata, '$.window.cache') AS cache, json_extract(t.metadata, '$.answer.model') AS model,
    json_type(t.metadata, '$.shadow') IS NOT NULL AS shadow
FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
LEFT JOIN post b ON b.tenant = s.tenant AND b.conversation = s.conversation AND b.seq = s.base
LEFT JOIN post r ON r.tenant = s.tenant AND r.conversation = s.conversation AND r.seq = s.reply_seq AND s.reply_seq > 0
WHERE t.tenant = :tenant AND t.conversation = :no AND t.n BETWEEN :first AND :last ORDER BY t.n, s.n;

-- name: post_place
-- Where a post stands, and who said it when.
SELECT id, seq, role, sender, created_at AS at FROM post WHERE tenant = :tenant AND conversation = :no AND id = :id;

-- name: talks_page
-- Conversations of a tenant, newest first, from a cursor on, each with how its first post of a user begins.
SELECT c.*, coalesce((
    SELECT substr(coalesce(p.message, p.small, ''), 1, 400) FROM post p
    WHERE p.tenant = c.tenant AND p.conversation = c.no AND p.seq <= 8 AND p.role = 'user' ORDER BY p.seq LIMIT 1
), '') AS said
FROM conversation c
WHERE tenant = :tenant AND (updated_at < :before OR (updated_at = :before AND no < :before_no))
    AND (:user IS NULL OR (user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(participants) WHERE value = :user))
ORDER BY updated_at DESC, no DESC LIMIT :limit;

-- name: turn_newest
-- The newest turn of a conversation with its newest step's manifest.
SELECT t.n, t.state, json_type(t.metadata, '$.shadow') IS NOT NULL AS shadow, s.manifest
FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
WHERE t.tenant = :tenant AND t.conversation = :no ORDER BY t.n DESC, s.n DESC LIMIT 1;

-- name: turns_answering
-- The steps of the turns of some rounds, oldest first.
SELECT t.n AS turn, s.n AS step, t.round, t.state, t.query_seq, s.reply_seq, s.error, s.manifest, json_type(t.metadata, '$.shadow') IS NOT NULL AS shadow
FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
WHERE t.tenant = :tenant AND t.conversation = :no AND t.round BETWEEN :first AND :last ORDER BY t.n, s.n;

-- name: post_place
-- Select the position, sender and time of a post.
SELECT id, seq, role, sender, created_at AS at FROM post WHERE tenant = :tenant AND conversation = :no AND id = :id;

-- name: talks_page
-- Select a page of a tenant's conversations, newest first, each with the start of its first user post.
SELECT c.*, coalesce((
    SELECT substr(coalesce(p.message, p.small, ''), 1, 400) FROM post p
    WHERE p.tenant = c.tenant AND p.conversation = c.no AND p.seq <= 8 AND p.role = 'user' ORDER BY p.seq LIMIT 1
), '') AS said
FROM conversation c
WHERE tenant = :tenant AND (updated_at < :before OR (updated_at = :before AND no < :before_no))
    AND (:user IS NULL OR (user_id IS NULL AND NOT :proven) OR EXISTS (SELECT 1 FROM json_each(participants) WHERE value = :user))
ORDER BY updated_at DESC, no DESC LIMIT :limit;

-- name: turn_newest
-- Select the newest turn of a conversation with the manifest of its newest step.
SELECT t.n, t.state, json_type(t.metadata, '$.shadow') IS NOT NULL AS shadow, s.manifest
FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
WHERE t.tenant = :tenant AND t.conversation = :no ORDER BY t.n DESC, s.n DESC LIMIT 1;

-- name: turns_answering
-- Select the steps of the turns of some rounds, oldest first.
SELECT t.n AS turn, s.n AS step, t.round, t.state, t.query_seq, s.reply_seq, s.error, s.manifest, json_type(t.metadata, '$.shadow') IS NOT NULL AS shadow
FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
WHERE t.tenant = :tenant AND t.conversation = :no AND t.round BETWEEN :first AND :last ORDER BY t.n, s.n;

-- name: answers_of_rounds
-- Select the turn and step of each answer in some rounds.
SELECT s.reply_seq, s.turn, s.n FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
WHERE t.tenant = :tenant AND t.conversation = :no AND t.round IN (SELECT value FROM json_each(:rounds)) AND s.reply_seq > 0;

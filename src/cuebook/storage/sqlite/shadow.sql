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

-- name: calls_spent
-- Select the model calls of some turns, with the tokens of the path and of the answer, oldest first.
SELECT t.n AS turn, s.n AS step, t.steps AS steps, s.state, s.manifest, s.reply_usage AS usage, t.created_at AS at,
    coalesce(b.path_tokens, 0) AS path_tokens, coalesce(b.path_count, 0) AS posts, coalesce(r.tokens, 0) AS reply,
    json_extract(t.metadata, '$.window.cache') AS cache, json_extract(t.metadata, '$.answer.model') AS model,
    json_type(t.metadata, '$.shadow') IS NOT NULL AS shadow
FROM turn t JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation AND s.turn = t.n
LEFT JOIN post b ON b.tenant = s.tenant AND b.conversation = s.conversation AND b.seq = s.base
LEFT JOIN post r ON r.tenant = s.tenant AND r.conversation = s.conversation AND r.seq = s.reply_seq AND s.reply_seq > 0
WHERE t.tenant = :tenant AND t.conversation = :no AND t.n BETWEEN :first AND :last ORDER BY t.n, s.n;

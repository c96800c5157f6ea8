-- name: vault_key
-- The id of the key with which everything in the vault is sealed.
SELECT id FROM vault_key WHERE one = 1;

-- name: vault_key_put
-- Note the key's id, or the one that is used from now on.
INSERT INTO vault_key (one, id) VALUES (1, :id) ON CONFLICT (one) DO UPDATE SET id = excluded.id;

-- name: vault_key_drop
-- Note that nothing is sealed any more: the next key is the first.
DELETE FROM vault_key;

-- name: sealed_insert
-- Keep what a token of a post replaced.
INSERT INTO sealed (tenant, conversation, seq, token, body) VALUES (?, ?, ?, ?, ?);

-- name: sealed_of_posts
-- What is kept of some posts of a conversation, by their ids.
SELECT p.id, s.token, s.body FROM post p JOIN sealed s ON s.tenant = p.tenant AND s.conversation = p.conversation AND s.seq = p.seq
WHERE p.tenant = :tenant AND p.conversation = :no AND p.id IN (SELECT value FROM json_each(:posts)) ORDER BY s.seq, s.token;

-- name: sealed_said
-- What is kept of some tokens in what users said in a conversation, the oldest first.
SELECT p.id, s.token, s.body FROM sealed s JOIN post p ON p.tenant = s.tenant AND p.conversation = s.conversation AND p.seq = s.seq
WHERE s.tenant = :tenant AND s.conversation = :no AND s.token IN (SELECT value FROM json_each(:tokens)) AND p.role = 'user'
ORDER BY s.seq;

-- name: sealed_in
-- All that is kept of a conversation, in order.
SELECT p.id, s.token, s.body FROM sealed s JOIN post p ON p.tenant = s.tenant AND p.conversation = s.conversation AND p.seq = s.seq
WHERE s.tenant = :tenant AND s.conversation = :no ORDER BY s.seq, s.token;

-- name: sealed_all
-- Everything that is kept, with the place it belongs to.
SELECT s.tenant, s.conversation AS no, s.seq, s.token, s.body, c.id AS conversation, p.id AS post
FROM sealed s JOIN conversation c ON c.tenant = s.tenant AND c.no = s.conversation
JOIN post p ON p.tenant = s.tenant AND p.conversation = s.conversation AND p.seq = s.seq
WHERE :tenant IS NULL OR s.tenant = :tenant ORDER BY s.tenant, s.conversation, s.seq, s.token;

-- name: sealed_anew
-- Replace what is kept by the same under another key.
UPDATE sealed SET body = :body WHERE tenant = :tenant AND conversation = :no AND seq = :seq AND token = :token;

-- name: sealed_counts
-- How much a tenant's vault keeps.
SELECT count(DISTINCT conversation || token) AS secrets, count(DISTINCT conversation || ':' || seq) AS posts,
    count(DISTINCT conversation) AS conversations FROM sealed WHERE tenant = :tenant;

-- name: sealed_families
-- A tenant's secrets by the family their tokens name.
SELECT substr(token, 10, instr(token, '#') - 10) AS family, count(DISTINCT conversation || token) AS secrets
FROM sealed WHERE tenant = :tenant GROUP BY family ORDER BY family;

-- name: sealed_conversations
-- What is kept of each conversation, in numbers, those with the newest posts first.
SELECT c.id, c.user_id, count(DISTINCT s.token) AS secrets, count(DISTINCT s.seq) AS posts
FROM sealed s JOIN conversation c ON c.tenant = s.tenant AND c.no = s.conversation
WHERE s.tenant = :tenant GROUP BY c.no ORDER BY c.updated_at DESC, c.no DESC LIMIT :limit;

-- name: delete_sealed
-- Give up what the vault keeps of a conversation.
DELETE FROM sealed WHERE tenant = :tenant AND conversation = :no;

-- name: sealed_of_post_delete
-- Give up what the vault keeps of a post.
DELETE FROM sealed WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: sealed_of_tenant_delete
-- Give up all that a tenant's vault keeps.
DELETE FROM sealed WHERE tenant = :tenant;

-- name: sealed_any
-- Whether the vault keeps anything of anyone.
SELECT 1 FROM sealed LIMIT 1;

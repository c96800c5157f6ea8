-- Statements that differ on PostgreSQL: full-text search, lists of values, JSON, and hints for SQLite's planner.
-- A MATCH expression of FTS5 is `scope : "TOKEN" AND key : ("WORD" OR "WORD")`.

-- name: memory_find
-- Select the best full-text matches among memories that are valid, or were at a time.
SELECT t.rowid FROM memory_text t JOIN memory m ON m.no = t.rowid,
    to_tsquery('simple', translate(replace(substring(:match from 'key : \((.*)\)$'), ' OR ', ' | '), '"', '''')) q
WHERE t.scope = substring(:match from '^scope : "([^"]*)"') AND to_tsvector('simple', t.key) @@ q
    AND CASE WHEN :at IS NULL THEN m.valid_to IS NULL ELSE m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at) END
ORDER BY ts_rank(to_tsvector('simple', t.key), q) DESC, t.rowid LIMIT :limit;

-- name: memory_count_of_word
-- Count the index rows of a place with a word.
SELECT count(*) FROM memory_text t,
    to_tsquery('simple', translate(replace(substring(:match from 'key : \((.*)\)$'), ' OR ', ' | '), '"', '''')) q
WHERE t.scope = substring(:match from '^scope : "([^"]*)"') AND to_tsvector('simple', t.key) @@ q;

-- name: memory_keys
-- Select the indexed words of a place's valid memories.
SELECT m.no, t.key FROM memory m JOIN memory_text t ON t.rowid = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.valid_to IS NULL LIMIT :limit;

-- name: memory_keys_at
-- Select the indexed words of a place's memories that were valid at a time.
SELECT m.no, t.key FROM memory m JOIN memory_text t ON t.rowid = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at)
LIMIT :limit;

-- name: memories_by_said
-- Select memories of a place by text number.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner
    AND said IN (SELECT value::bigint FROM jsonb_array_elements_text(:said));

-- name: memories_by_no
-- Select memories by number.
SELECT * FROM memory WHERE tenant = :tenant AND no IN (SELECT value::bigint FROM jsonb_array_elements_text(:nos));

-- name: memories_named
-- Select memories of a place by id.
SELECT no FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner
    AND id IN (SELECT value FROM jsonb_array_elements_text(:ids));

-- name: memory_page
-- Select a page of a place's memories, in order of creation.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND no > :after
    AND (:ended OR valid_to IS NULL) AND (:category IS NULL OR category = :category) ORDER BY no LIMIT :limit;

-- name: memory_page_of_all
-- Select a page of all memories, in order of creation.
SELECT * FROM memory WHERE tenant = :tenant AND no > :after
    AND (:ended OR valid_to IS NULL) AND (:category IS NULL OR category = :category) ORDER BY no LIMIT :limit;

-- name: memory_idle
-- Select unchanged memories of some categories since a time, of a tenant or of all.
SELECT * FROM memory WHERE (:tenant IS NULL OR tenant = :tenant) AND valid_to IS NULL AND used_at < :before AND decayed_at < :before
    AND category IN (SELECT value FROM jsonb_array_elements_text(:categories)) ORDER BY used_at LIMIT :limit;

-- name: memory_used
-- Count a use of memories.
UPDATE memory SET uses = uses + 1, used_at = greatest(used_at, :now), confidence = least(1.0, round((confidence + :by)::numeric, 6))
WHERE tenant = :tenant AND no IN (SELECT value::bigint FROM jsonb_array_elements_text(:nos));

-- name: memory_sources
-- Select the sources of memories; a deleted conversation has no id.
SELECT s.memory, s.post, coalesce(c.id, '') AS id FROM memory_source s LEFT JOIN conversation c ON c.no = s.conversation
WHERE s.tenant = :tenant AND s.memory IN (SELECT value::bigint FROM jsonb_array_elements_text(:nos)) ORDER BY s.conversation, s.post;

-- name: place_changed
-- Increment a place's change counter. A place created again after an erasure reuses no generation and no text number.
INSERT INTO place (tenant, kind, owner, of_user, generation, said, said_at)
SELECT :tenant, :kind, :owner, CASE :kind WHEN 'user' THEN :owner WHEN 'persona' THEN split_part(:owner, chr(31), 2) END,
    1 + begun, begun, 0 FROM (
    SELECT 1000000 * coalesce(max(epoch), 0) AS begun FROM epoch WHERE tenant = :tenant AND kind = '') before
ON CONFLICT (tenant, kind, owner) DO UPDATE SET generation = place.generation + 1 RETURNING said;

-- name: outsiders
-- Check whether one of these users has own keys, but none of the organization.
SELECT 1 FROM jsonb_array_elements_text(:users) u (id)
WHERE EXISTS (SELECT 1 FROM api_key k WHERE k.tenant = :tenant AND k.user_id = u.id AND k.revoked_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM api_key k WHERE k.tenant = :tenant AND k.user_id = u.id AND k.revoked_at IS NULL
        AND k.organizations::jsonb @> to_jsonb(:organization::text)) LIMIT 1;

-- name: posts_cited
-- Select the sender and round of posts.
SELECT id, seq, role, sender, round FROM post WHERE tenant = :tenant AND conversation = :no
    AND id IN (SELECT value FROM jsonb_array_elements_text(:ids));

-- name: turns_terms
-- Select the sharing terms of a round's turns.
SELECT metadata::jsonb ->> :kept AS policy, metadata::jsonb ->> :shared AS shared, metadata::jsonb ->> :persona AS persona,
    (metadata::jsonb ->> :brought)::bigint AS brought, metadata::jsonb ->> :by AS by
FROM turn WHERE tenant = :tenant AND conversation = :no AND round = :round;

-- name: change_mark
-- Select a number that grows with every write of the database.
SELECT pg_current_wal_insert_lsn() - '0/0';

-- name: server_version
-- Select the version of the server.
SELECT current_setting('server_version');

-- name: posts_by_chain
-- Select the posts of a conversation at which a path with this chained digest ends, newest first.
SELECT conversation, seq FROM post
WHERE tenant = :tenant AND chain = :chain AND conversation = :no AND path_count = :depth ORDER BY seq DESC LIMIT :limit;

-- name: posts_by_chain_of_user
-- Select the posts of a user's conversations at which a path with this chained digest ends, newest first.
SELECT conversation, seq FROM post WHERE tenant = :tenant AND chain = :chain AND path_count = :depth
    AND coalesce((SELECT user_id FROM conversation WHERE no = post.conversation), '') = coalesce(:user, '')
ORDER BY +conversation DESC, +seq DESC LIMIT :limit;

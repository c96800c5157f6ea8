-- Statements that differ on PostgreSQL: full-text search, lists as one row, and functions with other names.
-- Functions of SQLite that PostgreSQL lacks are in `postgres_schema.sql`. A query of words is computed in a subquery, once: the plan of a
-- prepared statement would compute it for each row.

-- name: search_posts
-- For each word, select the newest posts that contain it in a range of rows, as a JSON array of row numbers.
SELECT w.value, (SELECT CAST(json_agg(f.rowid) AS TEXT) FROM (SELECT t.rowid FROM (SELECT rowid FROM post_text
    WHERE rowid BETWEEN :first AND :last AND words @@ w.query AND (CAST(:until AS DOUBLE PRECISION) IS NULL
    OR (SELECT p.created_at FROM post p WHERE p.tenant = :tenant AND p.conversation = post_text.rowid >> 32 AND p.seq = post_text.rowid & 4294967295) <= :until) OFFSET 0) t ORDER BY t.rowid DESC LIMIT :limit) f)
FROM (SELECT value, any_of(json_build_array(value)::text) AS query FROM json_each(:words) OFFSET 0) w;

-- name: search_posts_of_owner
-- For each word, select the newest posts that contain it in the conversations of a user and those that they joined, as a JSON array.
SELECT w.value, (SELECT CAST(json_agg(f.rowid) AS TEXT) FROM (SELECT t.rowid FROM (
    SELECT rowid FROM post_text WHERE tenant = :tenant AND owner = :owner AND words @@ w.query
    UNION ALL
    SELECT t.rowid FROM (SELECT value << 32 AS first, (value << 32) + 4294967295 AS last FROM json_numbers(:joined) OFFSET 0) j
    JOIN post_text t ON t.rowid BETWEEN j.first AND j.last WHERE t.tenant = :tenant AND t.words @@ w.query) t
    WHERE (CAST(:until AS DOUBLE PRECISION) IS NULL
        OR (SELECT p.created_at FROM post p WHERE p.tenant = :tenant AND p.conversation = t.rowid >> 32 AND p.seq = t.rowid & 4294967295) <= :until)
    ORDER BY t.rowid DESC LIMIT :limit) f)
FROM (SELECT value, any_of(json_build_array(value)::text) AS query FROM json_each(:words) OFFSET 0) w;

-- name: search_posts_of_tenant
-- For each word, select the newest posts of a tenant that contain it, as a JSON array.
SELECT w.value, (SELECT CAST(json_agg(f.rowid) AS TEXT) FROM (SELECT t.rowid FROM (SELECT rowid FROM post_text
    WHERE tenant = :tenant AND owner <> '' AND words @@ w.query AND (CAST(:until AS DOUBLE PRECISION) IS NULL
    OR (SELECT p.created_at FROM post p WHERE p.tenant = :tenant AND p.conversation = post_text.rowid >> 32 AND p.seq = post_text.rowid & 4294967295) <= :until) OFFSET 0) t ORDER BY t.rowid DESC LIMIT :limit) f)
FROM (SELECT value, any_of(json_build_array(value)::text) AS query FROM json_each(:words) OFFSET 0) w;

-- name: search_counts
-- For each word, count the posts that contain it in a range of rows.
SELECT w.value, (SELECT count(*) FROM post_text WHERE rowid BETWEEN :first AND :last AND words @@ w.query)
FROM (SELECT value, any_of(json_build_array(value)::text) AS query FROM json_each(:words) OFFSET 0) w;

-- name: found_posts
-- Select posts for recall, and those near them of at most so many tokens, with their indexed words, in any order.
SELECT p.seq, p.id, p.role, p.sender, p.message, p.parts, p.created_at, p.tokens, p.parent, p.body,
    (SELECT t.key FROM post_text t WHERE t.rowid = :base + p.seq) AS key  -- a join may read the whole index
FROM (SELECT value, true AS direct FROM json_numbers(:seqs) UNION ALL SELECT value, false FROM json_numbers(:near)) j
JOIN post p ON p.tenant = :tenant AND p.conversation = :no AND p.seq = j.value AND (j.direct OR p.tokens <= :most);

-- name: optimize_text
-- Do nothing: the server's vacuum removes erased words.
SELECT 1;

-- name: optimize_memory_text
-- Do nothing: the server's vacuum removes erased words.
SELECT 1;

-- name: memory_find
-- Select the best full-text matches among memories that are valid, or were at a time, by BM25 over all matches.
SELECT r.no FROM (SELECT array_agg(t.rowid) AS nos, array_agg(t.key) AS keys FROM memory_text t JOIN memory m ON m.no = t.rowid
    WHERE t.tenant = :tenant AND t.scope = :token AND t.words @@ (SELECT any_of(:words))
    AND CASE WHEN CAST(:at AS TEXT) IS NULL THEN m.valid_to IS NULL ELSE m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at) END
) f, ranked(f.nos, f.keys, :words) r ORDER BY r.score DESC, r.no LIMIT :limit;

-- name: memory_find_among
-- Rank some memories like memory_find: those with a word of the query.
SELECT r.no FROM (SELECT array_agg(t.rowid) AS nos, array_agg(t.key) AS keys
    FROM json_numbers(:nos) j JOIN memory_text t ON t.rowid = j.value JOIN memory m ON m.no = t.rowid
    WHERE t.tenant = :tenant AND t.scope = :token
    AND CASE WHEN CAST(:at AS TEXT) IS NULL THEN m.valid_to IS NULL ELSE m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at) END
) f, ranked(f.nos, f.keys, :words) r ORDER BY r.score DESC, r.no LIMIT :limit;

-- name: memory_counts
-- Count the index rows of a place with each of some words in one pass, and select those of a rare word. A word without rows is omitted.
WITH word AS MATERIALIZED (SELECT value, any_of(json_build_array(value)::text) AS query FROM json_each(:words)),
    match AS MATERIALIZED (SELECT t.rowid, t.words FROM memory_text t
        WHERE t.tenant = :tenant AND t.scope = :token AND t.words @@ (SELECT any_of(:words)))
SELECT w.value, count(*), CASE WHEN count(*) <= :most THEN array_agg(m.rowid) END
FROM word w JOIN match m ON m.words @@ w.query GROUP BY w.value;

-- name: memory_keys
-- Select the indexed words of a place's valid memories.
SELECT m.no, t.key FROM memory m JOIN memory_text t ON t.rowid = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.valid_to IS NULL LIMIT :limit;

-- name: memory_keys_at
-- Select the indexed words of a place's memories that were valid at a time.
SELECT m.no, t.key FROM memory m JOIN memory_text t ON t.rowid = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at)
LIMIT :limit;

-- name: memory_used
-- Count a use of memories.
UPDATE memory SET uses = uses + 1, used_at = greatest(used_at, :now), confidence = least(1.0, round((confidence + :by)::numeric, 6))
WHERE no IN (SELECT no FROM memory WHERE tenant = :tenant AND id IN (SELECT value FROM json_each(:ids)) AND valid_to IS NULL
    ORDER BY no FOR UPDATE) RETURNING *;

-- name: posts_by_digests
-- Select posts of a conversation equal to some messages, as one row of JSON; `at` is the message's number. `digests` are concatenated.
SELECT coalesce(json_agg(json_build_array(j.number, p.seq, p.parent, p.path_count, p.run_start, p.run_parent)), '[]')::text
FROM (SELECT value AS number, substr(CAST(:digests AS BYTEA), 1 + 16 * CAST(value AS INTEGER), 16) AS digest FROM json_numbers(:at) OFFSET 0) j
JOIN post p ON p.tenant = :tenant AND p.digest = j.digest AND p.conversation = :no;

-- name: prompt_branches
-- Select a prompt's branches, or one of them, with the evidence of their active versions; first written first.
SELECT b.name, b.head, b.active, v.weight, v.observations, v.body, v.evidence,
    (SELECT coalesce(json_agg(r.number ORDER BY r.number), '[]')::text FROM prompt_version r
        WHERE r.tenant = b.tenant AND r.slug = b.slug AND r.branch = b.name AND r.rolled_back = 1) AS rolled_back
FROM prompt_branch b JOIN prompt_version v ON v.tenant = b.tenant AND v.slug = b.slug AND v.branch = b.name AND v.number = b.active
WHERE b.tenant = :tenant AND b.slug = :slug AND (CAST(:branch AS TEXT) IS NULL OR b.name = :branch) ORDER BY b.name <> 'main', b.name;

-- name: log_position
-- Select the current end of the write-ahead log.
SELECT pg_current_wal_insert_lsn()::text;

-- name: change_mark
-- Select a number that grows with every write of the database.
SELECT pg_current_wal_insert_lsn() - '0/0';

-- name: server_version
-- Select the version of the server, and how many damaged pages it has found (none if it computes no checksums).
SELECT current_setting('server_version') AS version, coalesce(checksum_failures, 0) AS damaged
FROM pg_stat_database WHERE datname = current_database();

-- name: claims_now
-- Select the time of the database in seconds. The transaction does not wait for the disk: a lost claim costs only time.
SELECT extract(epoch FROM clock_timestamp())::double precision FROM set_config('synchronous_commit', 'off', true);

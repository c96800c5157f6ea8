-- Statements about vectors. A scope is `c` and a conversation's number, or a place's name.

-- name: embedded_get
-- How far a model is with a scope.
SELECT upto, vectors, began FROM embedded WHERE tenant = :tenant AND scope = :scope AND model = :model;

-- name: embedded_put
-- Move how far a model is with a scope.
INSERT INTO embedded (tenant, scope, model, owner, upto, vectors, began) VALUES (:tenant, :scope, :model, :owner, :upto, :vectors, :now)
ON CONFLICT (tenant, scope, model) DO UPDATE SET upto = excluded.upto, vectors = embedded.vectors + excluded.vectors;

-- name: embedded_of_owner
-- Scopes of one owner's conversations that have vectors of a model, the newest first.
SELECT scope FROM embedded WHERE tenant = :tenant AND owner = :owner AND model = :model ORDER BY began DESC LIMIT :limit;

-- name: embedded_counts
-- How many posts a model is through with, and how many vectors they have.
SELECT coalesce(sum(upto), 0), coalesce(sum(vectors), 0) FROM embedded WHERE model = :model;

-- name: embedded_due
-- Conversations changed since a time with posts behind the last that has vectors, each tenant's found by its index.
WITH RECURSIVE tenants (tenant) AS (
    SELECT min(tenant) FROM conversation
    UNION ALL SELECT (SELECT min(c.tenant) FROM conversation c WHERE c.tenant > t.tenant) FROM tenants t WHERE t.tenant IS NOT NULL
)
SELECT c.tenant, c.id, c.no, coalesce(e.upto, 0), c.last_seq FROM tenants t
CROSS JOIN conversation c INDEXED BY conversation_recent ON c.tenant = t.tenant AND c.updated_at >= :since
LEFT JOIN embedded e ON e.tenant = c.tenant AND e.scope = 'c' || c.no AND e.model = :model
WHERE c.last_seq > coalesce(e.upto, 0) ORDER BY c.updated_at DESC, c.no DESC LIMIT :limit;

-- name: vector_insert
-- Keep a vector.
INSERT INTO vector (tenant, scope, model, ref, part, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: vector_behind
-- Vectors of a scope behind a post, ascending.
SELECT ref, body FROM vector WHERE tenant = :tenant AND scope = :scope AND model = :model AND ref > :after ORDER BY ref, part;

-- name: delete_vectors
-- Forget a conversation's vectors, of every model.
DELETE FROM vector WHERE tenant = :tenant AND scope = 'c' || :no;

-- name: delete_embedded
-- Forget how far models were with a conversation.
DELETE FROM embedded WHERE tenant = :tenant AND scope = 'c' || :no;

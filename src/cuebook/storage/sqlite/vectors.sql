-- Statements about vectors. A scope is `c` and a conversation's number, or `p`, a place's kind, char(31) and its owner.

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
SELECT coalesce(sum(upto), 0), coalesce(sum(vectors), 0) FROM embedded WHERE model = :model AND substr(scope, 1, 1) = 'c';

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

-- name: places_due
-- Places in which something was said since a time behind the last text that has vectors.
SELECT p.tenant, p.kind, p.owner, coalesce(e.upto, 0), p.said FROM place p INDEXED BY place_said
LEFT JOIN embedded e ON e.tenant = p.tenant AND e.scope = 'p' || p.kind || char(31) || p.owner AND e.model = :model
WHERE p.said_at >= :since AND p.said > coalesce(e.upto, 0) ORDER BY p.said_at DESC LIMIT :limit;

-- name: place_last_said
-- The number of the newest text of a place.
SELECT said FROM place WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: memories_said
-- What the memories of a place say, and said before it was history, behind a text, in the order it came.
SELECT said, name, text FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND said > :after ORDER BY said LIMIT :limit;

-- name: memories_said_still
-- Which texts of a stretch a place still holds.
SELECT said FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND said > :after AND said <= :upto;

-- name: embedded_models
-- The models that are at a scope.
SELECT model FROM embedded WHERE tenant = :tenant AND scope = :scope;

-- name: embedded_less
-- Note that vectors of a scope are gone.
UPDATE embedded SET vectors = vectors - :gone WHERE tenant = :tenant AND scope = :scope AND model = :model;

-- name: vector_delete
-- Forget the vectors of one text.
DELETE FROM vector WHERE tenant = :tenant AND scope = :scope AND model = :model AND ref = :ref;

-- name: embedded_of_user
-- Forget how far models were with the places of a user.
DELETE FROM embedded WHERE tenant = :tenant AND scope IN (
    SELECT 'p' || kind || char(31) || owner FROM place WHERE tenant = :tenant AND ((kind = 'user' AND owner = :user)
        OR (kind = 'persona' AND substr(owner, instr(owner, char(31)) + 1) = :user)));

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

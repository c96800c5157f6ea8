-- Statements about vectors. A scope is `c` and a conversation's number, or `p`, a place's kind, char(31) and its owner.

-- name: embedded_get
-- Select the embedding progress of a model in a scope.
SELECT upto, vectors, began FROM embedded WHERE tenant = :tenant AND scope = :scope AND model = :model;

-- name: embedded_put
-- Update the embedding progress of a model in a scope.
INSERT INTO embedded (tenant, scope, model, owner, upto, vectors, began) VALUES (:tenant, :scope, :model, :owner, :upto, :vectors, :now)
ON CONFLICT (tenant, scope, model) DO UPDATE SET upto = excluded.upto, vectors = embedded.vectors + excluded.vectors;

-- name: embedded_of_owner
-- Select scopes of one owner's conversations with vectors of a model, newest first.
SELECT scope FROM embedded WHERE tenant = :tenant AND owner = :owner AND model = :model ORDER BY began DESC LIMIT :limit;

-- name: embedded_counts
-- Count the posts that a model has embedded, and their vectors.
SELECT coalesce(sum(upto), 0), coalesce(sum(vectors), 0) FROM embedded WHERE model = :model AND substr(scope, 1, 1) = 'c';

-- name: embedded_due
-- Select conversations changed since a time with posts after the last embedded one, by each tenant's index.
WITH RECURSIVE tenants (tenant) AS (
    SELECT min(tenant) FROM conversation
    UNION ALL SELECT (SELECT min(c.tenant) FROM conversation c WHERE c.tenant > t.tenant) FROM tenants t WHERE t.tenant IS NOT NULL
)
SELECT c.tenant, c.id, c.no, coalesce(e.upto, 0), c.last_seq FROM tenants t
CROSS JOIN conversation c INDEXED BY conversation_recent ON c.tenant = t.tenant AND c.updated_at >= :since
LEFT JOIN embedded e ON e.tenant = c.tenant AND e.scope = 'c' || c.no AND e.model = :model
WHERE c.last_seq > coalesce(e.upto, 0) ORDER BY c.updated_at DESC, c.no DESC LIMIT :limit;

-- name: places_due
-- Select places changed since a time with texts after the last embedded one.
SELECT p.tenant, p.kind, p.owner, coalesce(e.upto, 0), p.said FROM place p INDEXED BY place_said
LEFT JOIN embedded e ON e.tenant = p.tenant AND e.scope = 'p' || p.kind || char(31) || p.owner AND e.model = :model
WHERE p.said_at >= :since AND p.said > coalesce(e.upto, 0) ORDER BY p.said_at DESC LIMIT :limit;

-- name: place_last_said
-- Select the number of a place's newest text.
SELECT said FROM place WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: memories_said
-- Select current and former texts of a place's memories after a text number, in order.
SELECT said, name, text FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND said > :after ORDER BY said LIMIT :limit;

-- name: memories_said_still
-- Select the texts of a stretch that a place still has.
SELECT said FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND said > :after AND said <= :upto;

-- name: embedded_models
-- Select the models with embeddings of a scope.
SELECT model FROM embedded WHERE tenant = :tenant AND scope = :scope;

-- name: embedded_less
-- Reduce the vector count of a scope.
UPDATE embedded SET vectors = vectors - :gone WHERE tenant = :tenant AND scope = :scope AND model = :model;

-- name: vector_delete
-- Delete the vectors of one text.
DELETE FROM vector WHERE tenant = :tenant AND scope = :scope AND model = :model AND ref = :ref;

-- name: embedded_of_user
-- Delete the embedding progress of a user's places.
DELETE FROM embedded WHERE tenant = :tenant AND scope IN (
    SELECT 'p' || kind || char(31) || owner FROM place WHERE tenant = :tenant AND ((kind = 'user' AND owner = :user)
        OR (kind = 'persona' AND substr(owner, instr(owner, char(31)) + 1) = :user)));

-- name: vector_insert
-- Insert a vector.
INSERT INTO vector (tenant, scope, model, ref, part, body) VALUES (?, ?, ?, ?, ?, ?);

-- name: vector_behind
-- Select the vectors of a scope after a post, ascending.
SELECT ref, body FROM vector WHERE tenant = :tenant AND scope = :scope AND model = :model AND ref > :after ORDER BY ref, part;

-- name: delete_vectors
-- Delete a conversation's vectors, of every model.
DELETE FROM vector WHERE tenant = :tenant AND scope = 'c' || :no;

-- name: delete_embedded
-- Delete the embedding progress of a conversation.
DELETE FROM embedded WHERE tenant = :tenant AND scope = 'c' || :no;

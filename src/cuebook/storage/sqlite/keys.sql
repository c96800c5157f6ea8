-- name: key_insert
-- Keep a key.
INSERT INTO api_key (tenant, id, digest, role, user_id, organizations, name, created_at, expires_at, revoked_at)
VALUES (:tenant, :id, :digest, :role, :user, :organizations, :name, :created_at, :expires_at, NULL);

-- name: key_any
-- Whether there is a key of any tenant.
SELECT 1 AS one FROM api_key LIMIT 1;

-- name: key_by_id
-- A key of any tenant by its id.
SELECT * FROM api_key WHERE id = :id;

-- name: keys_of
-- The keys of a tenant, the oldest first.
SELECT * FROM api_key WHERE tenant = :tenant ORDER BY created_at, id;

-- name: key_revoke
-- Close a key.
UPDATE api_key SET revoked_at = :now WHERE tenant = :tenant AND id = :id AND revoked_at IS NULL;

-- name: outsiders
-- Whether some of these users have keys of their own, and none of an organization's.
SELECT 1 FROM json_each(:users) u
WHERE EXISTS (SELECT 1 FROM api_key k WHERE k.tenant = :tenant AND k.user_id = u.value AND k.revoked_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM api_key k JOIN json_each(k.organizations) o ON o.value = :organization
        WHERE k.tenant = :tenant AND k.user_id = u.value AND k.revoked_at IS NULL) LIMIT 1;

-- name: organization_get
-- An organization's settings.
SELECT settings FROM organization WHERE tenant = :tenant AND id = :id;

-- name: organization_put
-- Keep an organization's settings.
INSERT INTO organization (tenant, id, settings, updated_at) VALUES (:tenant, :id, :settings, :now)
ON CONFLICT (tenant, id) DO UPDATE SET settings = excluded.settings, updated_at = excluded.updated_at;

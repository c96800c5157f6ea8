-- name: key_insert
-- Store an API key.
INSERT INTO api_key (tenant, id, digest, role, user_id, organizations, name, created_at, expires_at, revoked_at)
VALUES (:tenant, :id, :digest, :role, :user, :organizations, :name, :created_at, :expires_at, NULL);

-- name: key_any
-- Check whether any tenant has an API key.
SELECT 1 AS one FROM api_key LIMIT 1;

-- name: key_by_id
-- Select an API key of any tenant by id.
SELECT * FROM api_key WHERE id = :id;

-- name: keys_of
-- Select the API keys of a tenant, oldest first.
SELECT * FROM api_key WHERE tenant = :tenant ORDER BY created_at, id;

-- name: key_revoke
-- Revoke an API key.
UPDATE api_key SET revoked_at = :now WHERE tenant = :tenant AND id = :id AND revoked_at IS NULL;

-- name: outsiders
-- Check whether one of these users has own keys, but none of the organization.
SELECT 1 FROM json_each(:users) u
WHERE EXISTS (SELECT 1 FROM api_key k WHERE k.tenant = :tenant AND k.user_id = u.value AND k.revoked_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM api_key k JOIN json_each(k.organizations) o ON o.value = :organization
        WHERE k.tenant = :tenant AND k.user_id = u.value AND k.revoked_at IS NULL) LIMIT 1;

-- name: organization_get
-- Select an organization's settings.
SELECT settings FROM organization WHERE tenant = :tenant AND id = :id;

-- name: organization_put
-- Store an organization's settings.
INSERT INTO organization (tenant, id, settings, updated_at) VALUES (:tenant, :id, :settings, :now)
ON CONFLICT (tenant, id) DO UPDATE SET settings = excluded.settings, updated_at = excluded.updated_at;

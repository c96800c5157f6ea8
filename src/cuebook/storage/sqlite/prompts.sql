-- Named statements for prompts and the audit log, with a sentence each. Loaded by base.py.

-- name: prompt_branches
-- Select a prompt's branches, or one of them, with the evidence of their active versions; first written first.
SELECT b.name, b.head, b.active, v.weight, v.observations, v.body, v.evidence,
    (SELECT json_group_array(r.number) FROM prompt_version r
        WHERE r.tenant = b.tenant AND r.slug = b.slug AND r.branch = b.name AND r.rolled_back = 1) AS rolled_back
FROM prompt_branch b CROSS JOIN prompt_version v ON v.tenant = b.tenant AND v.slug = b.slug AND v.branch = b.name AND v.number = b.active
WHERE b.tenant = :tenant AND b.slug = :slug AND (:branch IS NULL OR b.name = :branch) ORDER BY b.name <> 'main', b.name;

-- name: prompt_branch_get
-- Select the state of a branch.
SELECT head, active FROM prompt_branch WHERE tenant = :tenant AND slug = :slug AND name = :branch;

-- name: prompt_branch_put
-- Move a branch's head and active version, or create it.
INSERT INTO prompt_branch (tenant, slug, name, head, active) VALUES (:tenant, :slug, :branch, :head, :active)
ON CONFLICT (tenant, slug, name) DO UPDATE SET head = excluded.head, active = excluded.active;

-- name: prompt_names
-- Select a page of prompt names.
SELECT DISTINCT slug FROM prompt_branch WHERE tenant = :tenant AND slug > :after AND slug >= :first AND slug < :last ORDER BY slug LIMIT :limit;

-- name: prompt_labels
-- Select a prompt's labels by name.
SELECT name, branch, number, moved_by, moved_at FROM prompt_label WHERE tenant = :tenant AND slug = :slug ORDER BY name;

-- name: prompt_label_put
-- Point a label to a version.
INSERT INTO prompt_label (tenant, slug, name, branch, number, moved_by, moved_at) VALUES (:tenant, :slug, :name, :branch, :number, :by, :at)
ON CONFLICT (tenant, slug, name) DO UPDATE SET branch = excluded.branch, number = excluded.number, moved_by = excluded.moved_by,
    moved_at = excluded.moved_at;

-- name: prompt_version_get
-- Select one version.
SELECT body, rolled_back, weight, observations, evidence FROM prompt_version
WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number;

-- name: prompt_versions
-- Select versions of a prompt, of one branch or of all, oldest first.
SELECT body FROM prompt_version WHERE tenant = :tenant AND slug = :slug AND (:branch IS NULL OR branch = :branch) ORDER BY branch <> 'main', branch, number;

-- name: prompt_version_insert
-- Insert a version without observations.
INSERT INTO prompt_version (tenant, slug, branch, number, body, rolled_back, weight, observations, evidence)
VALUES (:tenant, :slug, :branch, :number, :body, 0, 0.5, 0, x'');

-- name: prompt_version_mark
-- Mark a version as rolled back, or clear the mark.
UPDATE prompt_version SET rolled_back = :rolled_back WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number;

-- name: prompt_version_learn
-- Update a version's weight and evidence.
UPDATE prompt_version SET weight = :weight, observations = observations + 1, evidence = :evidence
WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number;

-- name: prompt_version_relearn
-- Correct a version's weight and evidence.
UPDATE prompt_version SET weight = :weight, evidence = :evidence
WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number;

-- name: prompt_event_insert
-- Insert a prompt event.
INSERT INTO prompt_event (tenant, slug, body, branch, kind) VALUES (:tenant, :slug, :body, :branch, :kind);

-- name: prompt_events
-- Select the events of a prompt, newest first.
SELECT body FROM prompt_event WHERE tenant = :tenant AND slug = :slug ORDER BY no DESC LIMIT :limit;

-- name: prompt_events_on
-- Select the events of a branch without label events, newest first.
SELECT body FROM prompt_event WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND kind <> 'label' ORDER BY no DESC LIMIT :limit;

-- name: prompt_observation_insert
-- Insert an observation and its share.
INSERT INTO prompt_observation (tenant, slug, branch, number, user_id, counted, body)
VALUES (:tenant, :slug, :branch, :number, :user, :counted, :body);

-- name: prompt_observation_get
-- Select one observation.
SELECT * FROM prompt_observation WHERE no = :no AND tenant = :tenant;

-- name: prompt_observation_revise
-- Correct an observation; readers of its branch must read again.
UPDATE prompt_observation SET body = :body, revised = 1 + (
    SELECT coalesce(max(r.revised), 0) FROM prompt_observation r
    WHERE r.tenant = :tenant AND r.slug = :slug AND r.branch = :branch AND r.revised > 0)
WHERE no = :no AND tenant = :tenant;

-- name: prompt_observations_later
-- Count the later observations of a version that counted.
SELECT count(*) FROM prompt_observation
WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number AND no > :no AND counted > 0;

-- name: prompt_observations_revised
-- Count the corrections of a branch's observations.
SELECT max(revised) FROM prompt_observation WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND revised > 0;

-- name: prompt_observed_lately
-- Select the users and shares of a version's recent observations, newest first.
SELECT user_id, counted FROM prompt_observation WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number = :number
ORDER BY no DESC LIMIT :limit;

-- name: prompt_observed
-- Select prompts with observations after a mark.
SELECT slug, max(no) AS last FROM prompt_observation WHERE no > :after AND tenant = :tenant GROUP BY slug;

-- name: prompt_tenants
-- Select tenants with observations, by index steps.
WITH RECURSIVE tenants (tenant) AS (
    SELECT min(tenant) FROM prompt_observation
    UNION ALL SELECT (SELECT min(o.tenant) FROM prompt_observation o WHERE o.tenant > t.tenant) FROM tenants t WHERE t.tenant IS NOT NULL
)
SELECT tenant FROM tenants WHERE tenant IS NOT NULL;

-- name: prompt_observations_behind
-- Select observations of two versions after a mark, newest first.
SELECT no, body FROM prompt_observation WHERE tenant = :tenant AND slug = :slug AND branch = :branch AND number IN (:one, :other) AND no > :after
ORDER BY no DESC LIMIT :limit;

-- name: prompt_observations
-- Select observations of a prompt, of one branch or of all, newest first.
SELECT body FROM prompt_observation WHERE tenant = :tenant AND slug = :slug AND (:branch IS NULL OR branch = :branch) ORDER BY no DESC LIMIT :limit;

-- name: audit_last
-- Select the last record of a tenant's chain.
SELECT seq, hash FROM audit_record WHERE tenant = :tenant ORDER BY seq DESC LIMIT 1;

-- name: audit_insert
-- Append a record to the chain; personal texts are stored beside it.
INSERT INTO audit_record (tenant, seq, hash, body, texts) VALUES (:tenant, :seq, :hash, :body, :texts);

-- name: audit_records
-- Select a page of a chain's records, oldest first.
SELECT seq, hash, body, texts FROM audit_record WHERE tenant = :tenant AND seq > :after ORDER BY seq LIMIT :limit;

-- name: audit_checkpoints
-- Select the signed checkpoints of a chain, by size.
SELECT size, body FROM audit_checkpoint WHERE tenant = :tenant ORDER BY size;

-- name: audit_checkpoint_put
-- Store a checkpoint; the first of a size is kept.
INSERT INTO audit_checkpoint (tenant, size, body) VALUES (:tenant, :size, :body) ON CONFLICT DO NOTHING;

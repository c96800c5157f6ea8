-- name: epoch_get
-- Select the erasure epoch of an owner; the tenant's own epoch counts all erasures.
SELECT epoch FROM epoch WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: epoch_raise
-- Increment an owner's erasure epoch, which invalidates earlier reads.
INSERT INTO epoch (tenant, kind, owner, epoch) VALUES (:tenant, :kind, :owner, 1)
ON CONFLICT DO UPDATE SET epoch = epoch + 1 RETURNING epoch;

-- name: conversations_of_user
-- Select the conversations that a user owns.
SELECT * FROM conversation WHERE tenant = :tenant AND user_id = :user ORDER BY no;

-- name: conversations_heard
-- Select others' conversations in which this name spoke or takes part, and those with too many speakers to know.
SELECT * FROM conversation WHERE tenant = :tenant AND user_id IS NOT :user AND (
    EXISTS (SELECT 1 FROM json_each(participants) WHERE value = :user) OR EXISTS (SELECT 1 FROM json_each(speakers) WHERE value = :user)
    OR json_array_length(speakers) >= :many) ORDER BY no;

-- name: post_sent_by
-- Check whether a user has posts in a conversation.
SELECT 1 FROM post WHERE tenant = :tenant AND conversation = :no AND sender = :user LIMIT 1;

-- name: posts_left
-- Count the posts of a conversation that are not erased.
SELECT count(*) FROM post WHERE tenant = :tenant AND conversation = :no AND state <> 'erased';

-- name: posts_told
-- Select the text and sender of each post of a conversation, by seq.
SELECT seq, id, parent, round, role, sender, state, message, parts, body, tokens FROM post WHERE tenant = :tenant AND conversation = :no ORDER BY seq;

-- name: post_erase
-- Empty the text of a post; the post stays in its tree.
UPDATE post SET sender = :sender, recipient = '', role = :role, state = 'erased', message = :message, small = NULL, parts = NULL,
    wire = NULL, body = NULL, tokens = :tokens, small_tokens = :tokens, digest = :digest
WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: post_recipient
-- Replace a recipient by a placeholder.
UPDATE post SET recipient = :nobody WHERE tenant = :tenant AND conversation = :no AND recipient = :user;

-- name: post_sum
-- Update the running sum at a post.
UPDATE post SET path_tokens = :path_tokens WHERE tenant = :tenant AND conversation = :no AND seq = :seq;

-- name: post_text_words
-- Select the indexed words of a post.
SELECT c1 FROM post_text_content WHERE id = :id;

-- name: post_text_delete
-- Delete a post from the full-text index.
DELETE FROM post_text WHERE rowid = :id;

-- name: conversation_erased
-- Reset a conversation after an erasure: no derived data, and open turns are invalidated.
UPDATE conversation SET participants = :participants, company = :company, speakers = :speakers, words = :words, mark = :mark,
    backlog = :backlog, backlog_tokens = :backlog_tokens, compact_not_before = 0, generation = generation + 1 WHERE no = :no;

-- name: turns_told
-- Select each turn's metadata.
SELECT n, metadata FROM turn WHERE tenant = :tenant AND conversation = :no;

-- name: turn_metadata
-- Replace a turn's metadata.
UPDATE turn SET metadata = :metadata WHERE tenant = :tenant AND conversation = :no AND n = :n;

-- name: turns_of_rounds
-- Select the turns that answered some rounds.
SELECT n FROM turn WHERE tenant = :tenant AND conversation = :no AND round IN (SELECT value FROM json_each(:rounds));

-- name: steps_blank
-- Clear the partial answers and errors of a conversation's steps.
UPDATE step SET partial = NULL, error = '' WHERE tenant = :tenant AND conversation = :no;

-- name: manifests_of
-- Select the manifests of a conversation's steps, each with the round that its turn answered.
SELECT step.manifest, turn.round FROM step JOIN turn ON turn.tenant = step.tenant
 AND turn.conversation = step.conversation AND turn.n = step.turn
WHERE step.tenant = :tenant AND step.conversation = :no;

-- name: text_used
-- Check whether a post of a conversation has its body in a text.
SELECT 1 FROM post WHERE tenant = :tenant AND conversation = :no AND body = :digest LIMIT 1;

-- name: text_unuse
-- Delete a conversation's reference to a text.
DELETE FROM blob_use WHERE tenant = :tenant AND conversation = :no AND digest = :digest;

-- name: text_drop
-- Delete a text without references.
DELETE FROM blob WHERE tenant = :tenant AND digest = :digest
    AND NOT EXISTS (SELECT 1 FROM blob_use u WHERE u.tenant = blob.tenant AND u.digest = blob.digest);

-- name: keys_of_user
-- Delete a user's idempotency keys.
DELETE FROM idempotency WHERE tenant = :tenant AND substr(key, 1, length(:prefix)) = :prefix;

-- name: observations_naming
-- Select observations that name a user or a conversation.
SELECT no, user_id, body FROM prompt_observation WHERE tenant = :tenant
    AND (user_id = :user OR instr(CAST(body AS TEXT), :needle) > 0);

-- name: observation_rename
-- Replace the user of an observation.
UPDATE prompt_observation SET user_id = :user, body = :body WHERE no = :no;

-- name: audit_naming
-- Select records with texts that contain a name.
SELECT seq, body, texts FROM audit_record WHERE tenant = :tenant AND length(texts) > 2
    AND (instr(CAST(body AS TEXT), :needle) > 0 OR instr(CAST(texts AS TEXT), :inside) > 0) ORDER BY seq;

-- name: audit_erase
-- Erase the texts of a record; its commitments stay.
UPDATE audit_record SET texts = CAST('{}' AS BLOB) WHERE tenant = :tenant AND seq = :seq;

-- name: receipt_insert
-- Store the receipt of an erasure.
INSERT INTO receipt (tenant, id, state, body, created_at) VALUES (:tenant, :id, :state, :body, :now);

-- name: receipt_get
-- Select a receipt.
SELECT body FROM receipt WHERE tenant = :tenant AND id = :id;

-- name: receipts_last
-- Select the newest receipts, newest first.
SELECT body FROM receipt WHERE tenant = :tenant
ORDER BY created_at DESC, json_extract(CAST(body AS TEXT), '$.epoch') DESC LIMIT :limit;

-- name: receipts_pending
-- Select unsigned receipts, oldest first.
SELECT tenant, body FROM receipt WHERE state = 'pending' ORDER BY created_at LIMIT :limit;

-- name: receipt_finish
-- Replace a pending receipt by the signed one.
UPDATE receipt SET state = 'done', body = :body WHERE tenant = :tenant AND id = :id AND state = 'pending';

-- name: conversations_idle
-- Select conversations without a post since a time, oldest first.
SELECT tenant, id FROM conversation WHERE updated_at < :before AND lease_until = 0 ORDER BY updated_at, no LIMIT :limit;

-- name: memories_untouched
-- Select memories that were not stated, repeated, changed or ended since a time, oldest first.
SELECT tenant, id FROM memory WHERE used_at < :before AND coalesce(valid_to, 0) < :before ORDER BY used_at, no LIMIT :limit;

-- name: memories_from
-- Select memories from a conversation, by source post.
SELECT DISTINCT m.*, s.post FROM memory_source s JOIN memory m ON m.tenant = s.tenant AND m.no = s.memory
WHERE s.tenant = :tenant AND s.conversation = :no ORDER BY m.no;

-- name: memories_superseded
-- Select a place's memories that another one superseded or ended, except manual ones.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND id = :before AND valid_to IS NOT NULL AND NOT written
UNION SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND ended_by = :id AND valid_to IS NOT NULL AND NOT written;

-- name: memories_of_persona
-- Select a persona's memories, of one user or of all.
SELECT * FROM memory WHERE tenant = :tenant AND kind = 'persona' AND substr(owner, 1, length(:persona) + 1) = :persona || char(31)
    AND (:user IS NULL OR substr(owner, length(:persona) + 2) = :user) ORDER BY no;

-- name: memories_of_user
-- Select a user's memories: their own, and those of each persona about them.
SELECT m.* FROM place p CROSS JOIN memory m ON m.tenant = p.tenant AND m.kind = p.kind AND m.owner = p.owner
WHERE p.tenant = :tenant AND ((p.kind = 'user' AND p.owner = :user)
    OR (p.kind = 'persona' AND substr(p.owner, instr(p.owner, char(31)) + 1) = :user)) ORDER BY m.no;

-- name: places_of_user
-- Remove a user as the owner of places.
DELETE FROM place WHERE tenant = :tenant AND ((kind = 'user' AND owner = :user)
    OR (kind = 'persona' AND substr(owner, instr(owner, char(31)) + 1) = :user));

-- name: memory_source_drop
-- Delete one source of a memory.
DELETE FROM memory_source WHERE tenant = :tenant AND memory = :memory AND conversation = :no AND post = :post;

-- name: memory_forgets
-- Remove references to deleted memories from a place.
WITH gone (id) AS MATERIALIZED (SELECT value FROM json_each(:ids))
UPDATE memory SET supersedes = iif(supersedes IN gone, NULL, supersedes), ended_by = iif(ended_by IN gone, NULL, ended_by)
WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND (supersedes IN gone OR ended_by IN gone);

-- name: delivery_anew
-- Restart the delivery of a conversation; a running delivery finds the mark moved.
UPDATE delivery SET seq = 0, version = -:epoch, due = 1 WHERE tenant = :tenant AND conversation = :no;

-- name: windows_naming
-- Select steps whose window contains memories, of a user's conversations or of all.
SELECT s.conversation AS no, s.turn, s.n, s.manifest, s.state FROM step s JOIN conversation c ON c.tenant = s.tenant AND c.no = s.conversation
WHERE s.tenant = :tenant AND (:user IS NULL OR c.user_id = :user) AND instr(CAST(s.manifest AS TEXT), '"memory:') > 0;

-- name: optimize_memory_text
-- Merge the full-text index of memories so that forgotten terms leave its segments.
INSERT INTO memory_text (memory_text) VALUES ('optimize');

-- name: sources_of
-- Select the source posts of a memory.
SELECT conversation, post FROM memory_source WHERE tenant = :tenant AND memory = :no ORDER BY conversation, post;

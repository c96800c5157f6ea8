-- name: memory_find
-- Select the best full-text matches among valid memories.
SELECT t.rowid FROM memory_text t CROSS JOIN memory m ON m.no = t.rowid WHERE memory_text MATCH :match AND m.valid_to IS NULL
ORDER BY bm25(memory_text, 0.0, 1.0) LIMIT :limit;

-- name: memory_find_at
-- Select the best full-text matches among memories that were valid at a time.
SELECT t.rowid FROM memory_text t CROSS JOIN memory m ON m.no = t.rowid WHERE memory_text MATCH :match
    AND m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at) ORDER BY bm25(memory_text, 0.0, 1.0) LIMIT :limit;

-- name: memory_keys
-- Select the indexed words of a place's valid memories.
SELECT m.no, t.c1 FROM memory m INDEXED BY memory_standing CROSS JOIN memory_text_content t ON t.id = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.valid_to IS NULL LIMIT :limit;

-- name: memory_keys_at
-- Select the indexed words of a place's memories that were valid at a time.
SELECT m.no, t.c1 FROM memory m CROSS JOIN memory_text_content t ON t.id = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at)
LIMIT :limit;

-- name: memories_by_said
-- Select memories of a place by text number.
SELECT m.* FROM json_each(:said) j CROSS JOIN memory m
    ON m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.said = j.value;

-- name: memory_count_of_word
-- Count the index rows of a place with a word.
SELECT count(*) FROM memory_text WHERE memory_text MATCH :match;

-- name: memory_told
-- Select a memory's text and its number.
SELECT tenant, kind, owner, said, name, text FROM memory WHERE no = :no;

-- name: memory_held
-- Count the valid memories of a place.
SELECT count(*) FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND valid_to IS NULL;

-- name: memory_standing
-- Select the standing memories of a place, highest confidence first.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND valid_to IS NULL
ORDER BY confidence DESC, no DESC LIMIT :limit;

-- name: memory_of_place
-- Select all memories of a place, in order of creation.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner ORDER BY no;

-- name: memories_by_no
-- Select memories by number.
SELECT m.* FROM json_each(:nos) j CROSS JOIN memory m ON m.no = j.value WHERE m.tenant = :tenant;

-- name: memory_corrected
-- Select manually corrected memories of a place.
SELECT DISTINCT m.no FROM memory m JOIN memory_source s ON s.tenant = m.tenant AND s.memory = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.written = 1;

-- name: memories_named
-- Select memories of a place by id.
SELECT no FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND id IN (SELECT value FROM json_each(:ids));

-- name: memory_words
-- Select the texts of a place's memories, oldest first, and whether each has ended.
SELECT no, text, subject, valid_to IS NOT NULL FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner ORDER BY no;

-- name: memory_count
-- Count the memories of a place.
SELECT count(*) FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: memory_by_id
-- Select the memories with an id, of any place.
SELECT * FROM memory WHERE tenant = :tenant AND id = :id ORDER BY no;

-- name: memory_page
-- Select a page of a place's memories, in order of creation.
SELECT * FROM memory INDEXED BY memory_order WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND no > :after
    AND (:ended OR valid_to IS NULL) AND (:category IS NULL OR category = :category) ORDER BY no LIMIT :limit;

-- name: memory_page_of_all
-- Select a page of all memories, in order of creation.
SELECT * FROM memory NOT INDEXED WHERE tenant = :tenant AND no > :after
    AND (:ended OR valid_to IS NULL) AND (:category IS NULL OR category = :category) ORDER BY no LIMIT :limit;

-- name: memory_idle
-- Select unchanged memories of some categories since a time, of a tenant or of all.
SELECT * FROM memory WHERE (:tenant IS NULL OR tenant = :tenant) AND valid_to IS NULL AND used_at < :before AND decayed_at < :before AND category IN (SELECT value FROM json_each(:categories))
ORDER BY used_at LIMIT :limit;

-- name: memory_insert
-- Insert a memory.
INSERT INTO memory (tenant, kind, owner, id, category, name, text, subject, status, trust, confidence, weight, uses, used_at, decayed_at,
    valid_from, valid_to, supersedes, ended_by, repeated_at, written, said, created_at, updated_at)
VALUES (:tenant, :kind, :owner, :id, :category, :name, :text, :subject, :status, :trust, :confidence, :weight, :uses, :used_at, :decayed_at,
    :valid_from, :valid_to, :supersedes, :ended_by, :repeated_at, :written, :said, :created_at, :updated_at) RETURNING no;

-- name: memory_update
-- Update a memory.
UPDATE memory SET id = :id, category = :category, name = :name, text = :text, subject = :subject, status = :status, trust = :trust,
    confidence = :confidence, weight = :weight, uses = :uses, used_at = :used_at, decayed_at = :decayed_at, valid_from = :valid_from,
    valid_to = :valid_to, supersedes = :supersedes, ended_by = :ended_by, repeated_at = :repeated_at, written = :written, said = :said,
    updated_at = :updated_at WHERE no = :no;

-- name: memory_used
-- Count a use of memories.
UPDATE memory SET uses = uses + 1, used_at = max(used_at, :now), confidence = min(1.0, round(confidence + :by, 6))
WHERE +tenant = :tenant AND no IN (SELECT value FROM json_each(:nos));

-- name: memory_delete
-- Delete a memory.
DELETE FROM memory WHERE no = :no;

-- name: memory_text_insert
-- Add a memory to the full-text index.
INSERT INTO memory_text (rowid, scope, key) VALUES (:no, :token, :key);

-- name: memory_text_delete
-- Delete a memory from the full-text index.
DELETE FROM memory_text WHERE rowid = :no;

-- name: memory_sources
-- Select the sources of memories; a deleted conversation has no id.
SELECT s.memory, s.post, coalesce(c.id, '') AS id
FROM json_each(:nos) j CROSS JOIN memory_source s ON s.tenant = :tenant AND s.memory = j.value LEFT JOIN conversation c ON c.no = s.conversation
ORDER BY s.conversation, s.post;

-- name: memory_source_insert
-- Insert a source of a memory.
INSERT INTO memory_source (tenant, memory, conversation, post) VALUES (:tenant, :no, :conversation, :post) ON CONFLICT DO NOTHING;

-- name: memory_sources_delete
-- Delete the sources of a memory.
DELETE FROM memory_source WHERE tenant = :tenant AND memory = :no;

-- name: place_generation
-- Select the change counter of a place.
SELECT generation FROM place WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: places_with
-- Select a user's places: their own, and those of each persona about them.
SELECT kind, owner FROM place WHERE tenant = :tenant AND of_user = :user ORDER BY kind, owner;

-- name: place_changed
-- Increment a place's change counter. A place created again after an erasure reuses no generation and no text number.
INSERT INTO place (tenant, kind, owner, of_user, generation, said, said_at)
SELECT :tenant, :kind, :owner, CASE :kind WHEN 'user' THEN :owner WHEN 'persona' THEN substr(:owner, instr(:owner, char(31)) + 1) END,
    1 + begun, begun, 0 FROM (
    SELECT 1000000 * coalesce(max(epoch), 0) AS begun FROM epoch WHERE tenant = :tenant AND kind = '') WHERE true
ON CONFLICT DO UPDATE SET generation = generation + 1 RETURNING said;

-- name: place_said
-- Update the number of a place's newest text.
UPDATE place SET said = :said, said_at = :now WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: delivery_wanted
-- Mark a conversation as due for delivery.
INSERT INTO delivery (tenant, conversation, seq, version, due) VALUES (:tenant, :no, 0, 0, 1) ON CONFLICT DO UPDATE SET due = 1;

-- name: delivery_again
-- Mark a conversation as due again after a pass, if it delivers.
UPDATE delivery SET due = 1 WHERE tenant = :tenant AND conversation = :no;

-- name: deliveries_due
-- Select conversations that are due for delivery and have no running turn.
SELECT c.tenant, c.id FROM delivery d JOIN conversation c ON c.no = d.conversation WHERE d.due = 1 AND c.lease_until = 0 LIMIT :limit;

-- name: delivery_get
-- Select the delivery state of a conversation.
SELECT seq, version, due FROM delivery WHERE tenant = :tenant AND conversation = :no;

-- name: delivery_done
-- Update the delivery state of a conversation.
UPDATE delivery SET seq = :seq, version = :version, due = :due
WHERE tenant = :tenant AND conversation = :no AND seq = :done_seq AND version = :done_version;

-- name: posts_cited
-- Select the sender and round of posts.
SELECT id, seq, role, sender, round FROM post WHERE tenant = :tenant AND conversation = :no AND id IN (SELECT value FROM json_each(:ids));

-- name: turns_terms
-- Select the sharing terms of a round's turns.
SELECT json_extract(metadata, '$.' || :kept) AS policy, json_extract(metadata, '$.' || :shared) AS shared,
    json_extract(metadata, '$.' || :persona) AS persona, json_extract(metadata, '$.' || :brought) AS brought,
    json_extract(metadata, '$.' || :by) AS by
FROM turn WHERE tenant = :tenant AND conversation = :no AND round = :round;

-- name: turn_round_after
-- Select the first later round that a turn answered.
SELECT round FROM turn WHERE tenant = :tenant AND conversation = :no AND round > :round ORDER BY round LIMIT 1;

-- name: turn_round_before
-- Select the last earlier round that a turn answered.
SELECT round FROM turn WHERE tenant = :tenant AND conversation = :no AND round < :round ORDER BY round DESC LIMIT 1;

-- name: sources_in
-- Select a conversation's memories, except manual ones, with the position of each source post.
SELECT m.*, p.seq, p.created_at AS said_when FROM memory_source s JOIN memory m ON m.tenant = s.tenant AND m.no = s.memory
JOIN post p ON p.tenant = s.tenant AND p.conversation = s.conversation AND p.id = s.post
WHERE s.tenant = :tenant AND s.conversation = :no AND m.written = 0 ORDER BY m.no, p.seq;

-- name: source_times
-- Select the times of a memory's source posts, by conversation and post.
SELECT s.conversation, s.post, p.seq, p.created_at FROM memory_source s
LEFT JOIN post p ON p.tenant = s.tenant AND p.conversation = s.conversation AND p.id = s.post
WHERE s.tenant = :tenant AND s.memory = :memory;

-- name: memory_at
-- Select a memory by number.
SELECT * FROM memory WHERE no = :no AND tenant = :tenant;

-- name: memory_rests
-- Update a memory after sources were removed.
UPDATE memory SET confidence = :confidence, valid_from = :valid_from, repeated_at = :repeated_at, updated_at = :now WHERE no = :no;

-- name: memory_holds_on
-- Extend the validity of memories that a deleted memory had ended.
UPDATE memory SET valid_to = :valid_to, ended_by = :next, updated_at = :now
WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND ended_by = :id;

-- name: memory_follows
-- Link the successor of a deleted memory to its predecessor.
UPDATE memory SET supersedes = :before, updated_at = :now WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND supersedes = :id;

-- name: delivery_back
-- Reset the delivery mark to the fork of the head's path.
UPDATE delivery SET seq = :seq, version = :version, due = 1
WHERE tenant = :tenant AND conversation = :no AND seq = :done_seq AND version = :done_version;

-- name: organization_settings
-- Select an organization's settings.
SELECT settings FROM organization WHERE tenant = :tenant AND id = :id;

-- name: outbox_insert
-- Insert an outbox entry for a sink.
INSERT INTO outbox (tenant, conversation, version, sink) VALUES (:tenant, :no, :version, :sink);

-- name: outbox_of
-- Select outbox entries of some sinks, oldest first.
SELECT o.no, o.sink, o.tenant, c.id, o.version FROM outbox o JOIN conversation c ON c.no = o.conversation
WHERE o.sink IN (SELECT value FROM json_each(:sinks)) ORDER BY o.no LIMIT :limit;

-- name: outbox_delete
-- Delete an outbox entry.
DELETE FROM outbox WHERE no = :no;

-- name: delete_outbox
-- Delete a conversation's outbox entries.
DELETE FROM outbox WHERE tenant = :tenant AND conversation = :no;

-- name: delete_delivery
-- Delete the delivery state of a conversation.
DELETE FROM delivery WHERE tenant = :tenant AND conversation = :no;

-- name: memory_find
-- Best rows of a full-text question among memories that hold.
SELECT t.rowid FROM memory_text t CROSS JOIN memory m ON m.no = t.rowid WHERE memory_text MATCH :match AND m.valid_to IS NULL
ORDER BY bm25(memory_text, 0.0, 1.0) LIMIT :limit;

-- name: memory_find_at
-- Best rows of a full-text question among memories that held at a time.
SELECT t.rowid FROM memory_text t CROSS JOIN memory m ON m.no = t.rowid WHERE memory_text MATCH :match
    AND m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at) ORDER BY bm25(memory_text, 0.0, 1.0) LIMIT :limit;

-- name: memory_keys
-- The words of a place's memories that hold, as the index has them.
SELECT m.no, t.c1 FROM memory m INDEXED BY memory_standing CROSS JOIN memory_text_content t ON t.id = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.valid_to IS NULL LIMIT :limit;

-- name: memory_keys_at
-- The words of a place's memories that held at a time, as the index has them.
SELECT m.no, t.c1 FROM memory m CROSS JOIN memory_text_content t ON t.id = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.valid_from <= :at AND (m.valid_to IS NULL OR m.valid_to > :at)
LIMIT :limit;

-- name: memories_by_said
-- Memories of a place by the numbers of their texts.
SELECT m.* FROM json_each(:said) j CROSS JOIN memory m
    ON m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.said = j.value;

-- name: memory_count_of_word
-- How many rows of the index hold a word, of a place.
SELECT count(*) FROM memory_text WHERE memory_text MATCH :match;

-- name: memory_told
-- What a memory says, and under which number.
SELECT tenant, kind, owner, said, name, text FROM memory WHERE no = :no;

-- name: memory_held
-- How many memories of a place hold.
SELECT count(*) FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND valid_to IS NULL;

-- name: memory_standing
-- The memories of a place that stand by themselves, the surest first.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND valid_to IS NULL
ORDER BY confidence DESC, no DESC LIMIT :limit;

-- name: memory_of_place
-- All memories of a place, in the order they came.
SELECT * FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner ORDER BY no;

-- name: memories_by_no
-- Memories by their numbers.
SELECT m.* FROM json_each(:nos) j CROSS JOIN memory m ON m.no = j.value WHERE m.tenant = :tenant;

-- name: memory_corrected
-- Memories of a place that say what somebody wrote in the place of what was said.
SELECT DISTINCT m.no FROM memory m JOIN memory_source s ON s.tenant = m.tenant AND s.memory = m.no
WHERE m.tenant = :tenant AND m.kind = :kind AND m.owner = :owner AND m.written = 1;

-- name: memories_named
-- Memories of a place that have one of some ids.
SELECT no FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND id IN (SELECT value FROM json_each(:ids));

-- name: memory_words
-- What the memories of a place say, the oldest first, and whether that is over.
SELECT no, text, subject, valid_to IS NOT NULL FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner ORDER BY no;

-- name: memory_count
-- How many memories a place has.
SELECT count(*) FROM memory WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: memory_by_id
-- Memories of an id, of any place.
SELECT * FROM memory WHERE tenant = :tenant AND id = :id ORDER BY no;

-- name: memory_page
-- Memories of a place in the order they came, from one on.
SELECT * FROM memory INDEXED BY memory_order WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND no > :after
    AND (:ended OR valid_to IS NULL) AND (:category IS NULL OR category = :category) ORDER BY no LIMIT :limit;

-- name: memory_page_of_all
-- Memories of all places in the order they came, from one on.
SELECT * FROM memory NOT INDEXED WHERE tenant = :tenant AND no > :after
    AND (:ended OR valid_to IS NULL) AND (:category IS NULL OR category = :category) ORDER BY no LIMIT :limit;

-- name: memory_idle
-- Memories of some categories nobody touched since a time, of a tenant or of all.
SELECT * FROM memory WHERE (:tenant IS NULL OR tenant = :tenant) AND valid_to IS NULL AND used_at < :before AND decayed_at < :before AND category IN (SELECT value FROM json_each(:categories))
ORDER BY used_at LIMIT :limit;

-- name: memory_insert
-- Keep a new memory.
INSERT INTO memory (tenant, kind, owner, id, category, name, text, subject, status, trust, confidence, weight, uses, used_at, decayed_at,
    valid_from, valid_to, supersedes, ended_by, repeated_at, written, said, created_at, updated_at)
VALUES (:tenant, :kind, :owner, :id, :category, :name, :text, :subject, :status, :trust, :confidence, :weight, :uses, :used_at, :decayed_at,
    :valid_from, :valid_to, :supersedes, :ended_by, :repeated_at, :written, :said, :created_at, :updated_at) RETURNING no;

-- name: memory_update
-- Keep what became of a memory.
UPDATE memory SET id = :id, category = :category, name = :name, text = :text, subject = :subject, status = :status, trust = :trust,
    confidence = :confidence, weight = :weight, uses = :uses, used_at = :used_at, decayed_at = :decayed_at, valid_from = :valid_from,
    valid_to = :valid_to, supersedes = :supersedes, ended_by = :ended_by, repeated_at = :repeated_at, written = :written, said = :said,
    updated_at = :updated_at WHERE no = :no;

-- name: memory_used
-- Note that memories were said: each a use.
UPDATE memory SET uses = uses + 1, used_at = max(used_at, :now), confidence = min(1.0, round(confidence + :by, 6))
WHERE +tenant = :tenant AND no IN (SELECT value FROM json_each(:nos));

-- name: memory_delete
-- Remove a memory.
DELETE FROM memory WHERE no = :no;

-- name: memory_text_insert
-- Let a memory be found by its words.
INSERT INTO memory_text (rowid, scope, key) VALUES (:no, :token, :key);

-- name: memory_text_delete
-- Let a memory be found no more.
DELETE FROM memory_text WHERE rowid = :no;

-- name: memory_sources
-- Why memories are there; a conversation that is gone has no name.
SELECT s.memory, s.post, coalesce(c.id, '') AS id
FROM json_each(:nos) j CROSS JOIN memory_source s ON s.tenant = :tenant AND s.memory = j.value LEFT JOIN conversation c ON c.no = s.conversation
ORDER BY s.conversation, s.post;

-- name: memory_source_insert
-- Note why a memory is there.
INSERT INTO memory_source (tenant, memory, conversation, post) VALUES (:tenant, :no, :conversation, :post) ON CONFLICT DO NOTHING;

-- name: memory_sources_delete
-- Forget why a memory is there.
DELETE FROM memory_source WHERE tenant = :tenant AND memory = :no;

-- name: place_generation
-- How often a place has changed.
SELECT generation FROM place WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: places_with
-- A user's places: theirs, and what each persona knows of them.
SELECT kind, owner FROM place WHERE tenant = :tenant AND of_user = :user ORDER BY kind, owner;

-- name: place_changed
-- Count a change of a place. One that was forgotten and begins again has no generation and no number of a text it had before.
INSERT INTO place (tenant, kind, owner, of_user, generation, said, said_at)
SELECT :tenant, :kind, :owner, CASE :kind WHEN 'user' THEN :owner WHEN 'persona' THEN substr(:owner, instr(:owner, char(31)) + 1) END,
    1 + begun, begun, 0 FROM (
    SELECT 1000000 * coalesce(max(epoch), 0) AS begun FROM epoch WHERE tenant = :tenant AND kind = '') WHERE true
ON CONFLICT DO UPDATE SET generation = generation + 1 RETURNING said;

-- name: place_said
-- Note the number of the newest text of a place.
UPDATE place SET said = :said, said_at = :now WHERE tenant = :tenant AND kind = :kind AND owner = :owner;

-- name: delivery_wanted
-- Note that a conversation has something to deliver.
INSERT INTO delivery (tenant, conversation, seq, version, due) VALUES (:tenant, :no, 0, 0, 1) ON CONFLICT DO UPDATE SET due = 1;

-- name: delivery_again
-- Note that a pass has something to deliver, in a conversation that delivers.
UPDATE delivery SET due = 1 WHERE tenant = :tenant AND conversation = :no;

-- name: deliveries_due
-- Conversations that have something to deliver and no turn running.
SELECT c.tenant, c.id FROM delivery d JOIN conversation c ON c.no = d.conversation WHERE d.due = 1 AND c.lease_until = 0 LIMIT :limit;

-- name: delivery_get
-- What was delivered of a conversation.
SELECT seq, version, due FROM delivery WHERE tenant = :tenant AND conversation = :no;

-- name: delivery_done
-- Note what was delivered.
UPDATE delivery SET seq = :seq, version = :version, due = :due
WHERE tenant = :tenant AND conversation = :no AND seq = :done_seq AND version = :done_version;

-- name: posts_cited
-- Who said posts, and in which round.
SELECT id, seq, role, sender, round FROM post WHERE tenant = :tenant AND conversation = :no AND id IN (SELECT value FROM json_each(:ids));

-- name: turns_terms
-- Under which terms turns of a round were answered.
SELECT json_extract(metadata, '$.' || :kept) AS policy, json_extract(metadata, '$.' || :shared) AS shared,
    json_extract(metadata, '$.' || :persona) AS persona, json_extract(metadata, '$.' || :brought) AS brought,
    json_extract(metadata, '$.' || :by) AS by
FROM turn WHERE tenant = :tenant AND conversation = :no AND round = :round;

-- name: turn_round_after
-- The first round behind one that a turn answered.
SELECT round FROM turn WHERE tenant = :tenant AND conversation = :no AND round > :round ORDER BY round LIMIT 1;

-- name: turn_round_before
-- The last round before one that a turn answered.
SELECT round FROM turn WHERE tenant = :tenant AND conversation = :no AND round < :round ORDER BY round DESC LIMIT 1;

-- name: sources_in
-- Memories that come from a conversation and that nobody wrote by hand: by each post, where it stands.
SELECT m.*, p.seq, p.created_at AS said_when FROM memory_source s JOIN memory m ON m.tenant = s.tenant AND m.no = s.memory
JOIN post p ON p.tenant = s.tenant AND p.conversation = s.conversation AND p.id = s.post
WHERE s.tenant = :tenant AND s.conversation = :no AND m.written = 0 ORDER BY m.no, p.seq;

-- name: source_times
-- When the posts a memory comes from were said, by conversation and post.
SELECT s.conversation, s.post, p.seq, p.created_at FROM memory_source s
LEFT JOIN post p ON p.tenant = s.tenant AND p.conversation = s.conversation AND p.id = s.post
WHERE s.tenant = :tenant AND s.memory = :memory;

-- name: memory_at
-- A memory by its number.
SELECT * FROM memory WHERE no = :no AND tenant = :tenant;

-- name: memory_rests
-- Keep what a memory is with fewer sources.
UPDATE memory SET confidence = :confidence, valid_from = :valid_from, repeated_at = :repeated_at, updated_at = :now WHERE no = :no;

-- name: memory_holds_on
-- Let what a memory had ended hold until the next one ended it, or still.
UPDATE memory SET valid_to = :valid_to, ended_by = :next, updated_at = :now
WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND ended_by = :id;

-- name: memory_follows
-- Let what came after a memory come after the one before it.
UPDATE memory SET supersedes = :before, updated_at = :now WHERE tenant = :tenant AND kind = :kind AND owner = :owner AND supersedes = :id;

-- name: delivery_back
-- Set what was delivered back to where the head's path left it.
UPDATE delivery SET seq = :seq, version = :version, due = 1
WHERE tenant = :tenant AND conversation = :no AND seq = :done_seq AND version = :done_version;

-- name: organization_settings
-- An organization's settings.
SELECT settings FROM organization WHERE tenant = :tenant AND id = :id;

-- name: outbox_insert
-- Note a pass for a sink.
INSERT INTO outbox (tenant, conversation, version, sink) VALUES (:tenant, :no, :version, :sink);

-- name: outbox_of
-- Passes noted for some sinks, the oldest first.
SELECT o.no, o.sink, o.tenant, c.id, o.version FROM outbox o JOIN conversation c ON c.no = o.conversation
WHERE o.sink IN (SELECT value FROM json_each(:sinks)) ORDER BY o.no LIMIT :limit;

-- name: outbox_delete
-- Cross a pass off.
DELETE FROM outbox WHERE no = :no;

-- name: delete_outbox
-- Forget what a conversation has noted for sinks.
DELETE FROM outbox WHERE tenant = :tenant AND conversation = :no;

-- name: delete_delivery
-- Forget what of a conversation was delivered.
DELETE FROM delivery WHERE tenant = :tenant AND conversation = :no;

-- name: reflection_ask
-- Request a reflection on a turn, after the existing ones.
INSERT INTO reflection (tenant, conversation, turn, n, due, calls)
SELECT :tenant, :no, :turn, coalesce(max(n), 0) + 1, 1, :calls FROM reflection
WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- name: reflections_due
-- Select the oldest due reflection of each conversation, of an ended turn.
SELECT r.tenant, c.id, min(r.turn * 1000000 + r.n) AS place FROM reflection r
JOIN conversation c ON c.no = r.conversation
JOIN turn t ON t.tenant = r.tenant AND t.conversation = r.conversation AND t.n = r.turn
WHERE r.due = 1 AND t.state <> 'running'
GROUP BY r.tenant, r.conversation LIMIT :limit;

-- name: reflections_due_in
-- Select the oldest due reflections of a conversation, of ended turns.
SELECT r.turn, r.n FROM reflection r
JOIN turn t ON t.tenant = r.tenant AND t.conversation = r.conversation AND t.n = r.turn
WHERE r.tenant = :tenant AND r.conversation = :no AND r.due = 1 AND t.state <> 'running'
ORDER BY r.turn, r.n LIMIT :limit;

-- name: reflections_left
-- Count the due reflections of ended turns.
SELECT count(*) FROM reflection r
CROSS JOIN turn t ON t.tenant = r.tenant AND t.conversation = r.conversation AND t.n = r.turn
WHERE r.due = 1 AND t.state <> 'running';

-- name: reflections_waiting
-- Count the due reflections of a conversation.
SELECT count(*) FROM reflection WHERE tenant = :tenant AND conversation = :no AND due = 1;

-- name: reflection_get
-- Select a reflection by turn and number.
SELECT * FROM reflection WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n;

-- name: reflection_done
-- Store the result of a reflection.
UPDATE reflection SET due = 0, body = :body
WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n AND due = 1;

-- name: reflections_made
-- Select reflections up to a turn, newest first, with the positions of their turns.
SELECT r.body, t.query_seq, t.reply_seq FROM reflection r
JOIN turn t ON t.tenant = r.tenant AND t.conversation = r.conversation AND t.n = r.turn
WHERE r.tenant = :tenant AND r.conversation = :no AND r.due = 0 AND r.turn <= :turn ORDER BY r.turn DESC, r.n DESC;

-- name: delete_reflections
-- Delete a conversation's reflections.
DELETE FROM reflection WHERE tenant = :tenant AND conversation = :no;

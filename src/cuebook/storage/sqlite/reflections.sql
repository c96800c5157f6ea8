-- name: reflection_ask
-- Ask for a reflection on a turn, behind those there are.
INSERT INTO reflection (tenant, conversation, turn, n, due, calls)
SELECT :tenant, :no, :turn, coalesce(max(n), 0) + 1, 1, :calls FROM reflection
WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- name: reflections_due
-- The oldest due reflection of each conversation, of a turn that has ended.
SELECT r.tenant, c.id, min(r.turn * 1000000 + r.n) AS place FROM reflection r
JOIN conversation c ON c.no = r.conversation
JOIN turn t ON t.tenant = r.tenant AND t.conversation = r.conversation AND t.n = r.turn
WHERE r.due = 1 AND t.state <> 'running'
GROUP BY r.tenant, r.conversation LIMIT :limit;

-- name: reflections_due_in
-- The oldest due reflections of a conversation, of turns that have ended.
SELECT r.turn, r.n FROM reflection r
JOIN turn t ON t.tenant = r.tenant AND t.conversation = r.conversation AND t.n = r.turn
WHERE r.tenant = :tenant AND r.conversation = :no AND r.due = 1 AND t.state <> 'running'
ORDER BY r.turn, r.n LIMIT :limit;

-- name: reflections_left
-- How many reflections are due of turns that have ended.
SELECT count(*) FROM reflection r
CROSS JOIN turn t ON t.tenant = r.tenant AND t.conversation = r.conversation AND t.n = r.turn
WHERE r.due = 1 AND t.state <> 'running';

-- name: reflections_waiting
-- How many reflections of a conversation are due.
SELECT count(*) FROM reflection WHERE tenant = :tenant AND conversation = :no AND due = 1;

-- name: reflection_get
-- A reflection by its place.
SELECT * FROM reflection WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n;

-- name: reflection_done
-- Keep what came of a reflection.
UPDATE reflection SET due = 0, body = :body
WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND n = :n AND due = 1;

-- name: reflections_made
-- Reflections up to a turn, the newest first, with where their turns stand.
SELECT r.body, t.query_seq, t.reply_seq FROM reflection r
JOIN turn t ON t.tenant = r.tenant AND t.conversation = r.conversation AND t.n = r.turn
WHERE r.tenant = :tenant AND r.conversation = :no AND r.due = 0 AND r.turn <= :turn ORDER BY r.turn DESC, r.n DESC;

-- name: delete_reflections
-- Forget a conversation's reflections.
DELETE FROM reflection WHERE tenant = :tenant AND conversation = :no;

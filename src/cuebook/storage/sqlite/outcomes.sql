-- name: outcome_get
-- What came of a turn.
SELECT * FROM outcome WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- name: outcomes_lately
-- What came of a conversation's newest turns, the newest first.
SELECT body FROM outcome WHERE tenant = :tenant AND conversation = :no ORDER BY turn DESC LIMIT :limit;

-- name: outcome_note
-- Keep what came of a turn, unless something is kept of it.
INSERT INTO outcome (tenant, conversation, turn, due, revision, user_id, body, taught)
VALUES (:tenant, :no, :turn, 1, 1, :user, :body, x'') ON CONFLICT DO NOTHING;

-- name: outcome_give
-- Put another outcome of a turn in the place of what is kept, and let it be due.
INSERT INTO outcome (tenant, conversation, turn, due, revision, user_id, body, taught)
VALUES (:tenant, :no, :turn, 1, 1, :user, :body, x'')
ON CONFLICT DO UPDATE SET due = 1, revision = revision + 1, user_id = excluded.user_id, body = excluded.body;

-- name: outcome_taught
-- Note what was learnt of an outcome: it is no longer due.
UPDATE outcome SET due = 0, taught = :taught WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND revision = :revision AND due = 1;

-- name: outcomes_due
-- Turns whose outcome nobody has learnt from.
SELECT o.tenant, c.id AS conversation, o.turn FROM outcome o
CROSS JOIN conversation c ON c.no = o.conversation
WHERE o.due = 1 ORDER BY o.tenant, o.conversation, o.turn LIMIT :limit;

-- name: delete_outcomes
-- Forget what came of a conversation's turns.
DELETE FROM outcome WHERE tenant = :tenant AND conversation = :no;

-- name: outcomes_of
-- What came of each turn of a conversation, and who said so.
SELECT turn, user_id, body FROM outcome WHERE tenant = :tenant AND conversation = :no;

-- name: outcome_delete
-- Forget what came of a turn.
DELETE FROM outcome WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- name: outcome_get
-- Select the outcome of a turn.
SELECT * FROM outcome WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

-- name: outcomes_lately
-- Select the outcomes of a conversation's newest turns, newest first.
SELECT body FROM outcome WHERE tenant = :tenant AND conversation = :no ORDER BY turn DESC LIMIT :limit;

-- name: outcome_note
-- Store the outcome of a turn unless it has one.
INSERT INTO outcome (tenant, conversation, turn, due, revision, user_id, body, taught)
VALUES (:tenant, :no, :turn, 1, 1, :user, :body, x'') ON CONFLICT DO NOTHING;

-- name: outcome_give
-- Replace the outcome of a turn and mark it as due.
INSERT INTO outcome (tenant, conversation, turn, due, revision, user_id, body, taught)
VALUES (:tenant, :no, :turn, 1, 1, :user, :body, x'')
ON CONFLICT DO UPDATE SET due = 1, revision = revision + 1, user_id = excluded.user_id, body = excluded.body;

-- name: outcome_taught
-- Mark an outcome as applied to its prompts.
UPDATE outcome SET due = 0, taught = :taught WHERE tenant = :tenant AND conversation = :no AND turn = :turn AND revision = :revision AND due = 1;

-- name: outcomes_due
-- Select turns whose outcome was not yet applied.
SELECT o.tenant, c.id AS conversation, o.turn FROM outcome o
CROSS JOIN conversation c ON c.no = o.conversation
WHERE o.due = 1 ORDER BY o.tenant, o.conversation, o.turn LIMIT :limit;

-- name: delete_outcomes
-- Delete the outcomes of a conversation's turns.
DELETE FROM outcome WHERE tenant = :tenant AND conversation = :no;

-- name: outcomes_of
-- Select the outcome of each turn of a conversation, and its user.
SELECT turn, user_id, body FROM outcome WHERE tenant = :tenant AND conversation = :no;

-- name: outcome_delete
-- Delete the outcome of a turn.
DELETE FROM outcome WHERE tenant = :tenant AND conversation = :no AND turn = :turn;

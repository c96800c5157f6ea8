# Claude Code: a question that reads a file (-p), the same conversation continued (-c), and /compact.
set -eu
echo "The ferry leaves at 9:45." > ferry.txt
export ANTHROPIC_MODEL=claude-sonnet-5 ANTHROPIC_SMALL_FAST_MODEL=claude-haiku-4-5
claude -p "Call Read {\"file_path\": \"$PWD/ferry.txt\"}"
claude -p -c "And back?"
claude -p -c /compact
claude -p -c "Where was I?"

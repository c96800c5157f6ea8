"""A persona that tracks the mood, and a message that changes it."""

PERSONA = {
    "id": "p",
    "baseSystemPrompt": "You are P.",
    "sentimentTracking": {"enabled": True, "presets": ["all"]},
    "metaPrompts": [{"id": "own", "trigger": {"type": "manual"}, "promptTemplate": "Mood {{current_mood}}?"}],
}
ANGRY = "This is terrible, it still does not work and I am really angry!!"

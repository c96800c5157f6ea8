"""One example for each method of the Python API: a function per namespace, with a comment before each method's example.

`scripts/docs_reference.py` puts them into the API reference. `tests/interfaces/test_api_examples.py` runs each function
on a project that `prepare` fills.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

from cuebook import Ask, BlockingCuebook, Conflict, NotFound, Posted
from cuebook.records.document import DocumentChange
from cuebook.records.key import LongTermMemoryChange, OrganizationMemoryChange

TRIP = [
    {"role": "user", "content": "The ferry to Vlieland leaves at 9:45 on Friday. I am allergic to peanuts."},
    {"role": "assistant", "content": "Noted: Friday, 9:45, and no peanuts."},
    {"role": "user", "content": "We stay at the campsite Stortemelk for three nights."},
    {"role": "assistant", "content": "Three nights at Stortemelk. Shall I look up the ferry back?"},
]


def prepare(cue: BlockingCuebook) -> None:
    """Store a conversation with a turn, and a prompt with a branch."""
    cue.append("trip", TRIP, user="mara")
    cue.ask(Ask("When does the ferry leave?", "trip", user="mara"))
    cue.prompts.save("greeting", {"body": "Greet $name in one sentence."}, params={"name": {"type": "string"}})
    cue.prompts.save("greeting", {"body": "Greet $name warmly in one sentence."})
    cue.prompts.fork("greeting", "formal")
    cue.settle()


def cuebook(cue: BlockingCuebook) -> None:
    # append
    cue.append(
        "walk",
        [
            Posted(sender="mara", message="The dunes are closed until June."),
            Posted(sender="assistant", message="I will plan around them."),
        ],
        user="mara",
    )
    cue.append("walk", [{"role": "user", "content": "Any chat message works too."}], user="mara")
    # ask
    reply = cue.ask(Ask("When does the ferry leave?", "trip", user="mara"))
    print(reply.text, reply.turn)
    # stream
    for chunk in cue.stream(Ask("And on Sunday?", "trip", user="mara")):
        print(chunk.text, end="")
    # assemble
    window = cue.assemble(Ask("When does the ferry leave?", "trip", user="mara"))
    print(window.messages, window.tokens, window.budget)
    # assemble_with_metadata
    window, metadata = cue.assemble_with_metadata(Ask("When does the ferry leave?", "trip", user="mara"))
    print(metadata["window"])
    # feedback
    cue.feedback("trip", 1, thumb="up", user="mara")
    # settle
    pending = cue.settle(timeout=30)
    assert pending == {}, pending
    # work
    print(cue.work(), "background jobs ran")
    # backlog
    print(cue.backlog())
    # check
    print(cue.check())
    # warm_up
    cue.warm_up()
    # of
    acme = cue.of("acme")  # the data of another tenant
    acme.append("trip", [{"role": "user", "content": "Only Acme sees this."}])


def conversations(cue: BlockingCuebook) -> None:
    # list
    for conversation in cue.conversations.list(q="ferry", limit=10).items:
        print(conversation.id, conversation.title)
    # get
    print(cue.conversations.get("trip").last_seq)
    # posts
    for post in cue.conversations.posts("trip", last=2).items:
        print(post.sender, post.message)
    # rounds
    for each in cue.conversations.rounds("trip").items:
        print(each.seq, each.user_query)
    # load
    print(len(cue.conversations.load("trip", branches=True).posts))
    # summary
    print(cue.conversations.summary("trip"))  # None: the conversation is still short
    # marks
    print(cue.conversations.marks("trip"))
    # session
    print(cue.conversations.session("trip").items[0])
    # shared_entries
    print(cue.conversations.shared_entries("trip").items)
    # move_head
    first = cue.conversations.posts("trip").items[0]
    cue.conversations.move_head("trip", first.id)  # what follows becomes another branch
    # participants
    cue.conversations.participants("trip", ["joris"])
    # append
    cue.conversations.append("trip", [{"role": "user", "content": "Is there a night ferry?"}], user="mara")
    # compress
    newest = cue.conversations.posts("trip", last=1).items[0]
    cue.conversations.append("trip", [{"role": "assistant", "content": "No, the last one is at 19:00."}], user="mara")
    cue.conversations.compress("trip", older_than=newest.id, summary="Mara takes the ferry on Friday at 9:45.")
    # delete
    print(cue.conversations.delete("trip"))  # what was deleted, by kind


def turns(cue: BlockingCuebook) -> None:
    # list
    for turn in cue.turns.list("trip").items:
        print(turn.turn, turn.state, turn.created_at)
    # get
    print(cue.turns.get("trip", 1).state)
    # show
    for block in cue.turns.show("trip", 1).window.blocks:
        print(block.kind, block.source, block.tokens)
    # verify
    print(cue.turns.verify("trip", 1).verdict)
    # replay
    print(cue.turns.replay("trip", 1).verdict)
    # what_if
    print(cue.turns.what_if("trip", 1, as_of="2020-01-01").window)  # with the memory of that day
    # feedback
    cue.turns.feedback("trip", 1, score=0.8, comment="Right, but long.", user="mara")


def memory(cue: BlockingCuebook) -> None:  # noqa: PLR0915  # an example of each method
    # add
    tea = cue.memory.add("Mara drinks tea without milk.", user="mara")
    # search
    for hit in cue.memory.search("What does Mara drink?", user="mara", limit=5):
        print(hit.score, hit.text, hit.sources)
    # list
    for each in cue.memory.list(user="mara").items:
        print(each.id, each.text)
    # get
    print(cue.memory.get(tea.id, user="mara").text)
    # update
    cue.memory.update(tea.id, "Mara drinks tea with oat milk.", user="mara")
    # history
    print([each.text for each in cue.memory.history(tea.id, user="mara").items])
    # restore
    try:
        cue.memory.restore(tea.id, user="mara")
    except Conflict as error:  # no model ended this memory
        print(error)
    # items
    print([each.text for each in cue.memory.items("trip").items])
    # take_up
    cue.memory.take_up("trip")
    # put_knowledge
    port = cue.memory.put_knowledge("domain", "ferry.port", "Harlingen")
    # list_knowledge
    print([each.value for each in cue.memory.list_knowledge(query="port").items])
    # use_knowledge
    print(cue.memory.use_knowledge(port.id).confidence)
    # decay_knowledge
    print(cue.memory.decay_knowledge(as_of=datetime.now(UTC)))
    # stats
    print(cue.memory.stats("trip"))
    # budget
    print(cue.memory.budget("trip"))
    # analyze
    print(cue.memory.analyze("trip").suggested_actions)
    # compress
    print(cue.memory.compress("A long text.\n" * 20).text)
    # digest
    print(cue.memory.digest("trip", last=5))
    # usefulness
    print(cue.memory.usefulness(turns=10))
    # utility
    found = cue.memory.utility(["trip"])
    # prune
    print(cue.memory.prune(found))  # None: nothing is useless yet
    # forgettable
    print([each.text for each in cue.memory.forgettable("oat milk", user="mara")])
    # would_forget
    print(cue.memory.would_forget(user="mara"))
    # forget_known
    cue.memory.forget_known([tea.id], user="mara", reason="asked to")
    # delete
    other = cue.memory.add("Mara likes wind.", user="mara")
    cue.memory.delete(other.id, user="mara")
    # export
    for each in cue.memory.export(user="mara"):
        print(each.text)
    # export_everything
    Path("mara.zip").write_bytes(b"".join(cue.memory.export_everything(user="mara")))
    # pull
    print([each.state for each in cue.memory.pull(Path("memories"))])  # a file for each owner and category
    # status
    print([each.file for each in cue.memory.status(Path("memories"))])
    # push
    print(cue.memory.push(Path("memories"), user="mara"))
    # forget
    receipt = cue.memory.forget(user="mara", reason="asked to")
    # erase
    answer = cue.memory.erase(conversation="trip", dry_run=True)
    print(answer)
    # receipts
    print([each.id for each in cue.memory.receipts()])
    # receipt
    signed = cue.memory.receipt(receipt.id)
    # verify_receipt
    assert cue.memory.verify_receipt(signed).ok
    # earlier_erasures
    print(cue.memory.earlier_erasures(users=["mara"]))
    # finish_receipts
    print(cue.memory.finish_receipts(), "receipts are pending")


def prompts(cue: BlockingCuebook) -> None:
    # save
    cue.prompts.save("greeting", {"body": "Greet $name briefly."}, author="mara")
    # list
    print([each.slug for each in cue.prompts.list(prefix="gre").items])
    # show
    print(cue.prompts.show("greeting").sections)
    # get
    print(cue.prompts.get("greeting", branch="formal").number)
    # version
    print(cue.prompts.version("greeting", 1).sections)
    # versions
    print([each.semver for each in cue.prompts.versions("greeting").items])
    # resolve
    print(cue.prompts.resolve("greeting").sections)
    # render
    print(cue.prompts.render("greeting", {"name": "Alex"}).text)
    # diff
    print(cue.prompts.diff("greeting", 1, 2))
    # fork
    cue.prompts.fork("greeting", "brief")
    # branches
    print([each.name for each in cue.prompts.branches("greeting").items])
    # merge
    cue.prompts.save("greeting", {"body": "Say hello to $name."}, branch="brief")
    cue.prompts.merge("greeting", "brief", theirs=True)
    # label
    cue.prompts.label("greeting", "production", version=2)
    # labels
    print([each.name for each in cue.prompts.labels("greeting").items])
    # observe
    print(cue.prompts.observe("greeting", sentiment=0.9, outcome="success").score)
    # select
    print(cue.prompts.select("greeting", seed=7).selected)
    # weights
    print(cue.prompts.weights("greeting"))
    # roll_back
    cue.prompts.roll_back("greeting", to=1, reason="too short")
    # clear
    event = cue.prompts.history("greeting").items[0]
    cue.prompts.clear("greeting", event.number, reason="tested again")
    # history
    print([each.kind for each in cue.prompts.history("greeting").items])
    # lint
    print(cue.prompts.lint("greeting").items)
    # rating
    print(cue.prompts.rating("greeting").score)
    # clusters
    print(cue.prompts.clusters())
    # migrate
    document = json.loads('[{"slug": "farewell", "type": "template", "sections": {"body": "Say goodbye."}}]')
    print(cue.prompts.migrate(document, dry_run=True))
    # pull
    cue.prompts.pull(Path("prompts"))
    # push
    print(cue.prompts.push(Path("prompts")))
    # drift
    print(cue.prompts.drift(Path("prompts")))


def documents(cue: BlockingCuebook) -> None:
    # put
    cue.documents.put([DocumentChange(space=("agents", "planner"), key="state", value={"step": 3})])
    # get
    print(cue.documents.get(("agents", "planner"), "state").value)
    # list
    print([each.key for each in cue.documents.list(("agents",)).items])
    # spaces
    print(cue.documents.spaces())
    # delete
    print(cue.documents.delete(("agents",)))


def experiences(cue: BlockingCuebook) -> None:
    # list
    print(cue.experiences.list().items)
    # select
    print(cue.experiences.select("My parcel has not arrived."))


def persona(cue: BlockingCuebook) -> None:
    # list
    print([each.id for each in cue.persona.list().items])
    # get
    try:
        print(cue.persona.get("kind_helper").base_system_prompt)
    except NotFound as error:
        print(error)


def keys(cue: BlockingCuebook) -> None:
    # new
    made = cue.keys.new("agent", name="planner", expires_days=90)
    print(made.token)  # shown once
    # list
    print([each.name for each in cue.keys.list().items])
    # configured
    assert cue.keys.configured()
    # admit
    print(cue.keys.admit(made.token).role)
    # rotate
    print(cue.keys.rotate(made.id, overlap_hours=12).id)
    # revoke
    cue.keys.revoke(made.id)


def organizations(cue: BlockingCuebook) -> None:
    # change
    change = LongTermMemoryChange(default_retrieval_enabled=False)
    cue.organizations.change("acme", OrganizationMemoryChange(long_term_memory=change))
    # settings
    print(cue.organizations.settings("acme"))


def mind(cue: BlockingCuebook) -> None:
    # show
    print(cue.mind.show("trip").mood)
    # run
    print(cue.mind.run("trip", "gmi_error_recovery"))
    # reset
    cue.mind.reset("trip")


def audit(cue: BlockingCuebook) -> None:
    # verify
    assert cue.audit.verify().ok
    # tail
    print([each.event for each in cue.audit.tail(5).items])
    # list
    print(cue.audit.list(limit=2).items)
    # get
    print(cue.audit.get(1).event)
    # find
    print(cue.audit.find(prompt="greeting").records)
    # checkpoints
    print(cue.audit.checkpoints().items)
    # replay
    cue.prompts.render("greeting", {"name": "Alex"}, log=True)
    rendered = cue.audit.tail(1).items[0]
    print(cue.audit.replay(rendered.seq).verdict)
    # export
    with Path("audit.jsonl").open("w") as file:
        for record in cue.audit.export():
            print(record, file=file)
    # accept
    print(cue.audit.accept())  # after you changed rows in the database by hand


def optimizer(cue: BlockingCuebook) -> None:
    # run
    print(cue.optimizer.run())
    # status
    print(cue.optimizer.status().current_parameters)
    # history
    print(cue.optimizer.history().items)


def shadow(cue: BlockingCuebook) -> None:
    # report
    print(cue.shadow.report())
    # calls
    print(cue.shadow.calls())
    # use_profile
    cue.shadow.use_profile("budget")


def prompt_sync(cue: BlockingCuebook) -> None:
    # bundle
    cue.prompt_sync.bundle("prompts.bundle")
    # unbundle
    print(cue.prompt_sync.unbundle("prompts.bundle"))
    # sync
    print(cue.prompt_sync.sync(Path("shared").absolute().as_uri()))
    # status
    print(cue.prompt_sync.status().fingerprint)
    # rotate_key
    cue.prompt_sync.rotate_key()

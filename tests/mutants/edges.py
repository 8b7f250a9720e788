"""Planted bugs at the edges: what goes in, what comes out, who speaks, and what a page says."""

from tests.mutants.catalogue import Mutant, bug
from tests.mutants.planting import Change

# Reading: a record's features are a function of that record and of public numbers.
READING: list[Mutant] = []

# Answers to questions, and their intervals.
ANSWERS: list[Mutant] = []

# Ranges of the codec, reserves of δ, noises and how they are found.
PRICES: list[Mutant] = []

# What is proved about noise, rounding and lengths.
PROOFS: list[Mutant] = []

# Encoders and models of others.
ENCODERS: list[Mutant] = []

# What was shown is what is approved; screens of a site.
APPROVALS: list[Mutant] = []

# Frames that the server signs, answers that a card signs, and the gate.
ENVELOPE, FORGED = "choral.protocol.envelope:", "tests/attacks/test_forged_frames.py::"
HEADS, GATE = "tests/protocol/test_envelope.py::", "tests/backends/test_flower_gate.py::"
SPEAKERS: list[Mutant] = [
    bug(
        "a frame that nobody signed is answered",
        "choral.deploy.agent:Agent.answer",
        "self.listener.opened(asked)",
        "asked",
        FORGED + "test_a_forged_end_of_a_study_is_refused_by_name_and_the_study_goes_on",
    ),
    bug(
        "a frame for another site is answered",
        ENVELOPE + "Listener.opened",
        "device != self.device",
        "False",
        HEADS + "test_a_frame_of_anybody_else_or_for_anybody_else_is_refused",
    ),
    bug(
        "a frame of another study is answered",
        ENVELOPE + "Listener.opened",
        "study != self.study",
        "False",
        FORGED + "test_a_frame_for_another_site_or_study_and_one_of_another_key_are_refused",
    ),
    bug(
        "a frame counts twice",
        ENVELOPE + "Listener.opened",
        "counter <= (last := self.heard())",
        "(last := self.heard()) < 0",
        HEADS + "test_a_frame_of_the_server_is_opened_once_and_a_later_one_after_it",
    ),
    bug(
        "a site forgets what it has heard",
        "choral.deploy.agent:Agent.__init__",
        "vault.change(heard=counter)",
        "None",
        FORGED + "test_a_frame_counts_once_also_after_the_site_was_started_again",
    ),
    bug(
        "a server counts from one again",
        "choral.deploy.serving:speaker_of",
        "max(before + 1, int(time.time()))",
        "1",
        FORGED + "test_a_server_that_is_started_again_or_restored_uses_no_counter_twice",
    ),
    bug(
        "an answer that nobody signed counts",
        "choral.backends.wire:Spoken.exchange",
        "answer_in(reply, heads[number], self._bundles[number])",
        "memoryview(reply)[72:]",
        FORGED + "test_an_answer_that_its_device_did_not_sign_is_missing_and_names_nobody",
    ),
    bug(
        "an answer fits every request",
        ENVELOPE + "answer_in",
        "head",
        "b''",
        HEADS + "test_an_answer_counts_for_its_request_and_of_its_device_alone",
        Change(ENVELOPE + "answered", "bytes(memoryview(request)[:REQUEST_HEAD])", "b''"),
    ),
    bug(
        "an early end without a reason is signed",
        "choral.protocol.device:Device._close",
        "message.turn.round < self._rounds",
        "False",
        FORGED + "test_a_site_signs_no_end_before_the_last_round_without_a_reason",
    ),
    bug(
        "a server without ML-KEM blames its devices",
        "choral.protocol.key_round:KeyRound.__init__",
        "require_available()",
        "None",
        FORGED + "test_a_server_without_ml_kem_ends_before_its_first_exchange_and_blames_nobody",
    ),
    bug(
        "a node may push what is no reply",
        "choral.backends.flower.replies:Replies._is_reply",
        "self._replied.get(said.reply_to_message_id) not in ('', said.message_id)",
        "False",
        GATE + "test_a_node_pushes_replies_to_what_it_was_handed_and_nothing_else",
    ),
    bug(
        "a node may speak for the server",
        "choral.backends.flower.replies:Replies._is_reply",
        "way != (request.node.node_id, SERVER)",
        "False",
        GATE + "test_a_node_pushes_replies_to_what_it_was_handed_and_nothing_else",
    ),
    bug(
        "a reply may be as long as it likes",
        "choral.backends.flower.replies:Replies._is_piece",
        "sum(sizes.values()) <= self._most_bytes",
        "True",
        GATE + "test_what_a_node_may_push_is_bounded_in_number_and_bytes",
    ),
    bug(
        "strangers take the places of sites",
        "choral.backends.flower.gate:Places.take",
        "network in self._known",
        "False",
        GATE + "test_half_of_the_places_are_for_networks_from_which_a_node_has_signed_in",
    ),
    bug(
        "a crowd pushes out who comes alone",
        "choral.backends.flower.gate:Places.take",
        "other == largest",
        "True",
        GATE + "test_the_oldest_line_of_the_largest_crowd_makes_room",
    ),
    bug(
        "a silent line gets an object of TLS",
        "choral.backends.flower.gate:Gate._attend",
        "await _hello(connection)",
        "pass",
        GATE + "test_a_line_that_says_nothing_costs_no_object_of_tls",
    ),
]

# Pages, verdicts, and what `choral verify` compares.
PAGES: list[Mutant] = []

EDGES = [*READING, *ANSWERS, *PRICES, *PROOFS, *ENCODERS, *APPROVALS, *SPEAKERS, *PAGES]

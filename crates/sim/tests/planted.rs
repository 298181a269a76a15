//! Tests of the tests: each planted fault must be noticed by some seed.

use broker::Fault as Node;
use client::Fault as Client;
use sim::{Planted, Weather, find, is_noticed};

/// Among so many seeds a fault has to be found; most are by one of the first
/// few, and a fenced producer that goes on by one of some hundreds.
const SEEDS: std::ops::Range<u64> = 0..1500;

macro_rules! planted {
    ($weather:expr; $($name:ident: $planted:expr => $word:expr;)*) => {
        $(#[test]
        fn $name() {
            is_noticed($planted, find($planted, $weather, SEEDS), $word);
        })*
    };
}

planted! {
    Weather::Chaos;
    an_early_ack: Planted::Broker(Node::AckEarly) => "";
    an_early_delivery: Planted::Broker(Node::VisibleEarly) => "";
    a_cursor_that_moves_back: Planted::Broker(Node::CursorBack) => "cursor of";
    an_early_answer_to_a_cursor: Planted::Broker(Node::CursorEarly) => "cursor of";
    a_retry_that_is_stored_again: Planted::Broker(Node::NoDeduplication) => "doubled";
    a_fenced_producer_that_goes_on: Planted::Broker(Node::NoFencing) => "had begun";
    a_stale_leader_epoch: Planted::Broker(Node::StaleLeaderEpoch) => "leader epoch";
    a_gap_that_is_not_told: Planted::Broker(Node::NoGap) => "no gap|have not ended";
    a_lost_partition_in_its_old_life: Planted::Broker(Node::SameIncarnation) => "";
    a_skipped_sync: Planted::NoSync => "";
    a_skipped_sync_of_a_directory: Planted::NoDirectorySync => "";
    a_skipped_sync_of_data: Planted::NoDataSync => "Damaged";
    a_retry_under_a_new_sequence: Planted::Client(Client::NewSequence) => "";
    a_budget_that_is_not_kept: Planted::Client(Client::NoBudget) => "its budget is";
    events_from_before_the_position: Planted::Client(Client::NoFloor) => "was next|cursor of";
    a_call_without_an_end: Planted::Client(Client::NoEnd) => "have not ended";
    acknowledgements_that_overtake_a_seek: Planted::Client(Client::NoHold) => "cursor of";
    an_acknowledgement_that_is_not_sent: Planted::Client(Client::NoAcknowledgement) => "cursor of";
}

planted! {
    Weather::Sharing;
    a_lease_that_is_given_twice: Planted::Broker(Node::LeaseTwice) => "still has it";
    an_acknowledgement_under_a_lease_that_is_over: Planted::Broker(Node::ExpiredLease) => "";
    a_dead_letter_that_is_dropped: Planted::Broker(Node::DropDeadLetter) => "there is no dead letter";
    a_position_of_a_group_that_moves_back: Planted::Broker(Node::CursorBack) => "it moved back|cursor of";
    events_of_a_key_out_of_turn: Planted::Broker(Node::KeysOutOfTurn) => "of that key";
    an_event_that_is_given_out_before_its_delay: Planted::Broker(Node::NoDelay) => "it is delayed";
    a_member_that_is_given_too_much: Planted::Broker(Node::NoPrefetch) => "more than its prefetch";
    retention_that_spares_nobody: Planted::Broker(Node::DropUnacknowledged) => "";
    retention_that_forgets: Planted::Broker(Node::KeepAcknowledged) => "all have acknowledged";
    a_group_that_moves_another: Planted::Broker(Node::MoveOthers) => "nobody";
    a_partition_that_is_granted_twice: Planted::Broker(Node::GrantTwice) => "owns it";
    an_acknowledgement_by_who_does_not_own: Planted::Broker(Node::FencedAck) => "does not own it";
}

planted! {
    Weather::Asking;
    a_reply_that_was_missed: Planted::Client(Client::SkipMissed) => "";
    a_reply_to_another_request: Planted::Client(Client::AnyReply) => "another's reply";
    a_deadline_that_is_not_watched: Planted::Client(Client::NoDeadline) => "after its deadline";
    somebody_who_is_missing_and_not_named: Planted::Client(Client::NobodyMissing) => "";
    a_reply_that_counts_twice: Planted::Client(Client::ReplyTwice) => "there twice";
    a_request_that_is_settled_before_its_reply: Planted::Client(Client::SettleEarly) => "";
}

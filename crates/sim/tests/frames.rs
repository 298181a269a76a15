//! How many frames a client sends: at most one per eight batches consumed,
//! and none in an idle second after a heartbeat. Over a counted transport,
//! on the virtual clock.

use sim::Consuming;

#[test]
fn a_consumer_sends_at_most_one_frame_for_eight_batches() {
    let counted = Consuming::default().run();
    assert!(counted.batches >= 400, "{counted:?}");
    let frames = counted.frames_while_consuming;
    assert!(
        frames * 8 <= counted.batches,
        "{frames} frames for {} batches",
        counted.batches
    );
}

#[test]
fn an_idle_consumer_says_nothing_between_heartbeats() {
    let counted = Consuming::default().run();
    assert!(counted.heartbeats_while_idle > 0, "{counted:?}");
    assert_eq!(counted.frames_after_heartbeat, 0, "{counted:?}");
}

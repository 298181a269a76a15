//! What nobody should wait for: on the virtual clock, where only the network
//! takes time, a round trip takes no longer than its four ways.

use client::QueueOptions;
use net::testing::sim::SimFaults;
use sim::Asking;
use std::time::Duration;

const REQUESTS: u64 = 100;

fn assert_no_timer_is_waited_for(queue: QueueOptions) {
    let asking = Asking {
        requests: REQUESTS,
        metadata_bytes: 128,
    };
    let way = Duration::from_nanos(SimFaults::none().delay_ns.end);
    let took = asking.takes(queue);
    assert!(took <= way * 4 * REQUESTS as u32, "{took:?}");
}

#[test]
fn requests_one_at_a_time_wait_for_no_timer() {
    assert_no_timer_is_waited_for(QueueOptions::default());
}

#[test]
fn nor_do_those_of_one_key_in_a_queue_that_is_ordered_by_key() {
    assert_no_timer_is_waited_for(QueueOptions {
        ordered_by_key: true,
        ..QueueOptions::default()
    });
}

//! What the model of leases allows, and what it does not.

use super::*;
use wire::{Incarnation, PartitionIndex};

const LEASE_MS: u32 = 300;
const QUEUE: &str = "queue";

fn lease(offset: u64, lease: u64, deliveries: u32) -> Lease {
    Lease {
        partition: PartitionIndex(0),
        incarnation: Incarnation(1),
        first: Offset(offset),
        end: Offset(offset + 1),
        lease: LeaseId(lease),
        deliveries,
    }
}

/// Gives a member an event of the one key that there is.
fn give(
    leases: &mut Leases,
    member: u128,
    lease: Lease,
    gone: &[u128],
    now: u64,
) -> Result<(), Violation> {
    let id = events(&lease).next().expect("it is one event");
    let handed = Handed {
        id,
        lease,
        key: Some(b"key".to_vec()),
        bytes: 1,
    };
    let given = Given {
        queue: QUEUE,
        member: MemberId(member),
        lease_ms: LEASE_MS,
        prefetch: (10, 1000),
        now,
    };
    leases.given(given, &[handed], |member| gone.contains(&member.0))
}

fn acknowledge(leases: &mut Leases, member: u128, lease: Lease, now: u64) -> Asked {
    let settlement = Settlement {
        lease,
        how: SettleAs::Acknowledge,
        delay_ms: 0,
        reason: String::new(),
    };
    leases.settle(QUEUE, MemberId(member), &[settlement], now)
}

/// The first event of a key is acknowledged, which is refused, and given to
/// another member.
fn refused_and_given_again() -> Leases {
    let turns = Turns::of([QUEUE.to_owned()].into());
    let mut leases = Leases::new(5, turns);
    give(&mut leases, 1, lease(0, 1, 1), &[], 0).unwrap();
    let asked = acknowledge(&mut leases, 1, lease(0, 1, 1), 1);
    leases.not_settled(QUEUE, &asked);
    let late = u64::from(LEASE_MS) * MILLISECOND * 2;
    give(&mut leases, 2, lease(0, 2, 2), &[], late).unwrap();
    leases
}

#[test]
fn a_restart_may_find_recorded_what_was_refused() {
    let mut leases = refused_and_given_again();
    leases.crashed();
    give(&mut leases, 1, lease(1, 3, 1), &[2], 0).unwrap();
}

#[test]
fn what_was_refused_is_not_done_in_the_same_run() {
    let mut leases = refused_and_given_again();
    let late = u64::from(LEASE_MS) * MILLISECOND * 10;
    let result = give(&mut leases, 1, lease(1, 3, 1), &[2], late);
    assert!(result.unwrap_err().0.contains("is not settled"));
}

#[test]
fn what_a_restart_gives_out_was_not_done() {
    let mut leases = refused_and_given_again();
    leases.crashed();
    give(&mut leases, 3, lease(0, 3, 2), &[1, 2], 0).unwrap();
    leases.crashed();
    let result = give(&mut leases, 1, lease(1, 4, 1), &[2, 3], 0);
    assert!(result.unwrap_err().0.contains("is not settled"));
}

/// Both have the event at the same time; the first, whose lease is over by
/// then, is let go on by a restarted server if it forgot so.
fn both_return(is_forgotten: bool) -> Result<(), Violation> {
    let mut leases = Leases::new(5, Turns::default());
    let late = u64::from(LEASE_MS) * MILLISECOND * 2;
    let id = events(&lease(0, 1, 1)).next().expect("it is one event");
    give(&mut leases, 1, lease(0, 1, 1), &[], 0)?;
    give(&mut leases, 2, lease(0, 2, 2), &[], late)?;
    let both = [(1, lease(0, 1, 1)), (2, lease(0, 2, 2))];
    if is_forgotten {
        leases.crashed();
    }
    for (member, lease) in both {
        let given = Given {
            queue: QUEUE,
            member: MemberId(member),
            lease_ms: LEASE_MS,
            prefetch: (10, 1000),
            now: late,
        };
        if is_forgotten {
            leases.joined(given, &[lease], (&[], &[]), true);
        }
        let span = (late - 10 * member as u64, late);
        let who = member.to_string();
        leases.confirmed(QUEUE, (id, lease.lease), &who, span, SettleAs::Return)?;
    }
    Ok(())
}

#[test]
fn who_goes_on_after_a_crash_may_have_had_it_beside_the_next() {
    both_return(true).unwrap();
}

#[test]
fn two_do_not_have_an_event_at_once() {
    let result = both_return(false);
    assert!(result.unwrap_err().0.contains("2 had event"));
}

//! What signals do to a server.

use crate::rig;

use rig::{Rig, signal};
use rustix::process::Signal;

/// Each start is another chance for a signal to come at a bad moment.
const ROUNDS: u32 = 50;

#[test]
fn a_server_that_is_ready_drains_on_the_first_signal() {
    let rig = Rig::default();
    for round in 0..ROUNDS {
        let server = rig.serve(&[]);
        let (status, log) = server.terminate();
        assert_eq!(status.code(), Some(0), "round {round}: {status}: {log}");
        assert!(!rig.group_file().exists(), "round {round}: {log}");
    }
}

#[test]
fn a_signal_amid_the_start_drains_as_well() {
    let rig = Rig::default();
    for round in 0..ROUNDS {
        let server = rig.serve_unready(&[]);
        server.wait_for_a_sign();
        let (status, log) = server.terminate();
        assert_eq!(status.code(), Some(0), "round {round}: {status}: {log}");
        assert!(!rig.group_file().exists(), "round {round}: {log}");
    }
}

#[test]
fn a_terminal_that_goes_away_does_not_end_a_server() {
    let rig = Rig::default();
    let server = rig.serve(&[]);
    for (number, name) in [
        (Signal::HUP, "SIGHUP"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
    ] {
        signal(server.pid(), number);
        server.wait_for_log(&format!("{name} is ignored"));
    }
    rig.run(&["topic", "create", "t"]).ok();
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// A line for the operator that nobody takes must not end the server: the
/// line about SIGHUP comes just when standard error is gone.
#[test]
fn a_server_outlives_its_standard_error() {
    let rig = Rig::default();
    let server = rig.serve_without_log(&[]);
    signal(server.pid(), Signal::HUP);
    signal(server.pid(), Signal::USR1);
    rig.run(&["topic", "create", "t"]).ok();
    let (status, _) = server.terminate();
    assert_eq!(status.code(), Some(0));
}

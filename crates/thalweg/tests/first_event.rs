//! One event from `thalweg produce` through a server process and its disk to
//! `thalweg consume`.

use crate::rig;

use rig::Rig;

#[test]
fn an_event_goes_in_is_kept_and_comes_out_again() {
    let rig = Rig::default();
    let server = rig.serve(&["--listen", "tcp://127.0.0.1:0"]);
    assert!(server.endpoints()[0].starts_with("tcp://127.0.0.1:"));
    rig.run(&["topic", "create", "images"]).ok();
    let acknowledged = rig
        .run_with(&["produce", "images", "--json"], "{\"angle\": 12.5}\n")
        .json();
    assert_eq!(acknowledged.last().unwrap()["acknowledged"], 1);

    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
    assert!(!rig.group_file().exists());

    let _server = rig.serve(&[]);
    let consumed = rig.run(&["consume", "images", "--name", "viewer"]).json();
    assert_eq!(consumed.len(), 1, "{consumed:?}");
    assert_eq!(consumed[0]["metadata"]["angle"], 12.5);
    assert_eq!(consumed[0]["offset"], 0);
    // It was acknowledged: the name's next life begins behind it.
    assert_eq!(rig.run(&["consume", "images", "--name", "viewer"]).ok(), "");
}

//! Copies of data between buffers, counted for the whole process, so that
//! this is its only test.

use sim::Moving;

#[test]
fn large_data_is_copied_at_most_once_by_the_server_and_not_by_the_client() {
    let copied = Moving::default().run();
    assert_eq!(copied.data_bytes, 16 << 20);
    assert!(copied.server_in <= copied.data_bytes, "{copied:?}");
    assert!(copied.server_out <= copied.data_bytes, "{copied:?}");
    // What the client's link reads together with the head of a frame is moved
    // to its place: of large data a few bytes, not the data.
    let allowed = copied.data_bytes / 1000;
    assert!(copied.client_in <= allowed, "{copied:?}");
    assert!(copied.client_out <= allowed, "{copied:?}");
}

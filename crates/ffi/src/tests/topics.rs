//! Topics that are made.

use super::calls::*;
use crate::error::SERVER_CODES;

#[test]
fn a_topic_that_is_there_is_opened_as_it_is_with_exist_ok() {
    let setup = Setup::new(c"");
    let driver = at(setup.driver);
    let name = c"events".as_ptr();

    // As before: a second topic of the name is refused, also when the option says no.
    let exists = SERVER_CODES + i32::from(wire::ErrorCode::TopicExists as u16);
    for options in [c"{}", c"{\"exist_ok\": false}"] {
        let (code, said) =
            fails(|error| thalweg_topic_create(driver, name, options.as_ptr(), None, error));
        assert_eq!(code, exists, "{said}");
    }

    // It has its two partitions and its storage, whatever the call names.
    let options = c"{\"exist_ok\": true, \"partitions\": 5, \"storage\": \"disk\"}".as_ptr();
    let topic = ok(|out, error| thalweg_topic_create(driver, name, options, out, error));
    assert_eq!(thalweg_topic_partition_count(at(topic)), 2);
    thalweg_topic_free(boxed(topic));
    done(|error| thalweg_topic_create(driver, name, options, None, error));

    // One that is not there is made, with what the call names.
    let options = c"{\"exist_ok\": true, \"partitions\": 3, \"storage\": \"memory\"}".as_ptr();
    let name = c"others".as_ptr();
    let topic = ok(|out, error| thalweg_topic_create(driver, name, options, out, error));
    assert_eq!(thalweg_topic_partition_count(at(topic)), 3);
    thalweg_topic_free(boxed(topic));

    let options = c"{\"exist_ok\": 1}".as_ptr();
    let (_, said) = fails(|error| thalweg_topic_create(driver, name, options, None, error));
    assert!(said.contains("exist_ok is true or false, not 1"), "{said}");
    setup.end();
}

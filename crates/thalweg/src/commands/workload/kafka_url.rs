//! `kafka://HOST:PORT,HOST:PORT`: where brokers are. There are no passwords in it.

use super::server_url::{Kind, Place, place};

pub const KIND: Kind = Kind {
    name: "Kafka",
    schemes: &[SCHEME],
    variable: "THALWEG_KAFKA_URL",
    is_secret: |text| parse(text).map(|_| false),
};

const SCHEME: &str = "kafka://";
const PORT: u16 = 9092;

/// Takes it apart.
pub fn parse(text: &str) -> Result<Vec<Place>, String> {
    let refuse = |why: &str| {
        Err(format!(
            "the URL of Kafka {why}; it is kafka://HOST:PORT, or some brokers with commas between"
        ))
    };
    let Some(rest) = text.strip_prefix(SCHEME) else {
        return refuse("does not begin with kafka://");
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('@') {
        return refuse("says who one is, and this command does not log in at brokers");
    }
    if rest.contains(['?', '#', '/']) {
        return refuse("has options, and none is known");
    }
    let places: Result<Vec<Place>, &str> = rest.split(',').map(|one| place(one, PORT)).collect();
    places.or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_brokers_are() {
        let places = parse("kafka://host.org,[::1]:7/").unwrap();
        let expected = [("host.org".to_owned(), 9092), ("::1".to_owned(), 7)];
        assert_eq!(places, expected);
        for text in [
            "http://host",
            "kafka://",
            "kafka://user:secret@host",
            "kafka://host?acks=all",
            "kafka://host:port",
            "kafka://host,,other",
        ] {
            let why = parse(text).unwrap_err();
            assert!(
                why.contains("kafka://HOST:PORT") && !why.contains("secret"),
                "{why}"
            );
        }
    }
}

//! What a node says of where something is that was asked of it and is not there.

use wire::{DirectoryId, ErrorCode, ErrorReply, TopicId};

/// How often a call goes on to another node without being refused for now: nodes may disagree for a moment.
pub(super) const HOPS_MAX: u8 = 4;

/// The node that has what was asked for: the `leader_hint` of a refusal, `ADDRESS#DIRECTORY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hint {
    /// Where it is, for a transport of the connection that the hint came by. Empty if the client has to know it.
    pub address: String,
    /// Its data directory.
    pub directory: DirectoryId,
}

impl Hint {
    /// What a refusal says of another node. `None` if it is no such refusal, or says nothing that is understood.
    pub fn of(error: &ErrorReply) -> Option<Self> {
        if error.code != ErrorCode::NotLeader {
            return None;
        }
        let (address, directory) = error.leader_hint.rsplit_once('#')?;
        let is_hex = directory.bytes().all(|byte| byte.is_ascii_hexdigit());
        let directory = (directory.len() == 32 && is_hex).then_some(directory)?;
        Some(Self {
            address: address.to_owned(),
            directory: DirectoryId(u128::from_str_radix(directory, 16).ok()?),
        })
    }

    /// The same as it is understood where its sender was reached at `dialled`: a socket is one for clients with and
    /// without shared memory, and an address of every interface is at the host that was dialled.
    pub fn seen_from(self, dialled: &str) -> Self {
        let parts = (self.address.split_once("://"), dialled.split_once("://"));
        let address = match parts {
            (Some(("unix" | "shm", path)), Some((own @ ("unix" | "shm"), _))) => {
                format!("{own}://{path}")
            }
            (Some((scheme, rest)), Some((own, at))) if scheme == own => {
                let port = UNSPECIFIED.iter().find_map(|host| rest.strip_prefix(host));
                match port {
                    Some(port) => format!("{own}://{}{port}", host_of(at)),
                    None => self.address,
                }
            }
            _ => self.address,
        };
        Self {
            address,
            directory: self.directory,
        }
    }
}

/// Hosts of an address that listens at every interface, with what precedes the port.
const UNSPECIFIED: [&str; 2] = ["0.0.0.0:", "[::]:"];

/// The host of `HOST:PORT?…`, and the colon.
fn host_of(rest: &str) -> &str {
    let authority = rest.split('?').next().unwrap_or(rest);
    authority
        .rfind(':')
        .map_or(authority, |colon| &authority[..=colon])
}

/// Something that a node does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elsewhere {
    pub what: What,
    pub hint: Hint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// What the call of this key is about, which no topic's id says.
    Call(u64),
    /// A topic, with all that the client does with it.
    Topic(TopicId),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(hint: &str) -> ErrorReply {
        ErrorReply {
            leader_hint: hint.to_owned(),
            ..ErrorReply::retryable(ErrorCode::NotLeader, 0, "not here")
        }
    }

    #[test]
    fn a_hint_is_an_address_and_a_directory() {
        let directory = DirectoryId(0xd2);
        for address in [
            "tcp://[::1]:9001",
            "unix:///run/a#b.sock",
            "tls://h:1?ca=x",
            "",
        ] {
            let hint = Hint::of(&refusal(&format!("{address}#{directory}")));
            let address = address.to_owned();
            assert_eq!(hint, Some(Hint { address, directory }));
        }
    }

    #[test]
    fn a_hint_is_understood_from_where_its_sender_was_reached() {
        for (said, dialled, seen) in [
            ("shm:///d/1/s", "unix:///d/s", "unix:///d/1/s"),
            ("unix:///d/1/s", "shm:///d/s", "shm:///d/1/s"),
            ("tcp://0.0.0.0:9001", "tcp://node7:9000", "tcp://node7:9001"),
            (
                "tls://[::]:9001",
                "tls://[fe80::1]:9000?sha256=ab",
                "tls://[fe80::1]:9001",
            ),
            (
                "tcp://10.0.0.1:9001",
                "tcp://node7:9000",
                "tcp://10.0.0.1:9001",
            ),
            // Another transport stays one.
            (
                "tcp://0.0.0.0:9001",
                "tls://node7:9000",
                "tcp://0.0.0.0:9001",
            ),
            ("unix:///s", "tcp://node7:9000", "unix:///s"),
            ("", "tcp://node7:9000", ""),
        ] {
            let directory = DirectoryId(1);
            let address = said.to_owned();
            let hint = Hint { address, directory }.seen_from(dialled);
            assert_eq!(hint.address, seen, "{said} from {dialled}");
        }
    }

    #[test]
    fn what_is_no_hint_says_nothing() {
        for text in [
            "",
            "tcp://h:1",
            "tcp://h:1#",
            "tcp://h:1#d2",
            "#+0000000000000000000000000000000",
        ] {
            assert_eq!(Hint::of(&refusal(text)), None, "{text}");
        }
        let other = ErrorReply {
            code: ErrorCode::UnknownTopic,
            ..refusal(&format!("tcp://h:1#{}", DirectoryId(1)))
        };
        assert_eq!(Hint::of(&other), None);
    }
}

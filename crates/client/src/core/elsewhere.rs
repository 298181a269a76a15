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
